"""Many diagrams at once: a process a core, each with an engine of its own."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from notelab.mermaid.engine import Engine
from notelab.mermaid.parsed import EngineMissing, Parsed

_TOGETHER = 10  # diagrams handed over at a time
_engine: Engine | None = None  # of this process, where it is one of the pool's

Timed = tuple[str, Parsed, float]


def parse(texts: list[str]) -> Iterator[list[Timed]]:
    """Yield some of the diagrams at a time, parsed, each with the seconds that it took.

    Whoever stops asking stops the rest. Where a process dies or has no engine, the diagrams that it
    had are left out, for whoever asks for one of them to hear why.
    """
    processes = min(os.cpu_count() or 1, 8)
    # Spawned, for a process forked from one with threads may wait for a lock that nobody holds.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_begin)
    try:
        parts = (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))
        asked: list[Future[list[Timed]]] = [pool.submit(_parse, part) for part in parts]
        for done in as_completed(asked):
            yield done.result()
    except (BrokenProcessPool, EngineMissing):
        return
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Leave Ctrl-C to the process that asked, which ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _parse(texts: list[str]) -> list[Timed]:
    global _engine  # noqa: PLW0603 (an engine takes a quarter of a second to start)
    _engine = _engine or Engine()
    found = []
    for text in texts:
        began = time.process_time()
        parsed = _engine.parse(text)
        found.append((text, parsed, time.process_time() - began))
    return found
