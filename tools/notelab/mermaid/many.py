"""Many diagrams at once: a process a core, each with an engine of its own.

The processes live no longer than the check that started them. Each watches a pipe that the system
closes when the check ends, whatever ended it, and a check that is interrupted kills them at once.
"""

import os
import signal
import threading
import time
from collections.abc import Generator
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from notelab.mermaid.engine import Engine
from notelab.mermaid.parsed import EngineMissing, Parsed

Timed = tuple[str, Parsed, float]


def parse(texts: list[str]) -> Generator[Timed]:
    """Yield each diagram as soon as it is parsed, with the seconds of a processor that it took.

    Closing the iterator ends the processes at once. If a process dies or has no engine, the diagram
    that it had is left out, so that a later question about that diagram says why.
    """
    waiting = list(reversed(texts))
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(os.cpu_count() or 1, 8, len(texts))):
            pipe, process = _started()
            workers[pipe] = process
            _hand(pipe, waiting)
        while workers:
            for ready in connection.wait(list(workers)):
                assert isinstance(ready, Connection)
                pipe = ready
                try:
                    yield pipe.recv()
                    _hand(pipe, waiting)
                except (EOFError, OSError):  # it died, or nothing is waiting for it any more
                    _end({pipe: workers.pop(pipe)})
    finally:
        _end(workers)


def _started() -> tuple[Connection, BaseProcess]:
    # Spawned, for a process forked from one with threads may wait for a lock that nobody holds.
    context = get_context("spawn")
    ours, workers = context.Pipe()
    process = context.Process(target=serve, args=(workers,), daemon=True)
    process.start()
    workers.close()
    return ours, process


def _hand(pipe: Connection, waiting: list[str]) -> None:
    """Hand a process the next diagram; raise EOFError where there is none."""
    if not waiting:
        raise EOFError
    pipe.send(waiting.pop())


def _end(workers: dict[Connection, BaseProcess]) -> None:
    for process in workers.values():
        process.kill()
    for pipe, process in workers.items():
        pipe.close()
        process.join()


def serve(pipe: Connection) -> None:
    """Parse what comes through a pipe until it closes: what each of the processes runs."""
    # Ctrl-C reaches every process of a terminal; the check that asked ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        engine = Engine()
        while True:
            text = pipe.recv()
            began = time.process_time()
            parsed = engine.parse(text)
            pipe.send((text, parsed, time.process_time() - began))
    except (EOFError, OSError, EngineMissing):
        return


def _end_with_parent() -> None:
    """End this process when its parent ends; the script engine lets other threads run meanwhile."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
