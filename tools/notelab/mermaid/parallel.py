"""Parses many diagrams in parallel: one process per core, each with its own engine.

The processes end with the check that started them. Each watches a pipe that the system closes when
the check ends for any reason, and an interrupted check kills its processes at once.
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
from notelab.mermaid.parsed_diagrams import EngineMissing, Parsed

Timed = tuple[str, Parsed, float]


def parse_all(texts: list[str]) -> Generator[Timed]:
    """Yield each diagram as soon as it is parsed, with the processor seconds that it took.

    Closing the iterator ends the processes at once. If a process dies or has no engine, its diagram
    is left out; a later `Diagrams.parse` of that diagram then says why.
    """
    waiting = list(reversed(texts))
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(os.cpu_count() or 1, 8, len(texts))):
            pipe, process = _start_worker()
            workers[pipe] = process
            _send_next(pipe, waiting)
        while workers:
            for ready in connection.wait(list(workers)):
                assert isinstance(ready, Connection)
                pipe = ready
                try:
                    yield pipe.recv()
                    _send_next(pipe, waiting)
                except (EOFError, OSError):  # the process died, or no diagram is left
                    _kill({pipe: workers.pop(pipe)})
    finally:
        _kill(workers)


def _start_worker() -> tuple[Connection, BaseProcess]:
    # Spawned, not forked: a fork of a process with threads may wait for a lock for ever.
    context = get_context("spawn")
    parent_end, worker_end = context.Pipe()
    process = context.Process(target=serve, args=(worker_end,), daemon=True)
    process.start()
    worker_end.close()
    return parent_end, process


def _send_next(pipe: Connection, waiting: list[str]) -> None:
    """Send a process the next diagram; raise EOFError if there is none."""
    if not waiting:
        raise EOFError
    pipe.send(waiting.pop())


def _kill(workers: dict[Connection, BaseProcess]) -> None:
    for process in workers.values():
        process.kill()
    for pipe, process in workers.items():
        pipe.close()
        process.join()


def serve(pipe: Connection) -> None:
    """Parse the texts that arrive through a pipe until it closes; this runs in each process."""
    # Ctrl-C reaches every process of a terminal; the check ends this process itself.
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
