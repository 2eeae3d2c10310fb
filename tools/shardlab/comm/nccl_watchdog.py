"""A thread that ends the process when a collective on GPUs doesn't finish, and names the lost rank.

On a GPU `wait` only orders the collective before later kernels of the stream; the host doesn't
block. So no call on the host fails when a rank is lost. This thread polls the collectives that were
started. When one takes longer than its timeout, it prints which ranks are missing and ends the
process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from shardlab.comm.faults import FailureReporter

POLL_SECONDS = 0.25


class Watchdog:
    """Polls a world's collectives in a daemon thread.

    Args:
        reporter: explains which ranks failed.
        timeout: seconds from the start of a collective on the host, including the time in which
            it is queued on the stream.
    """

    def __init__(self, reporter: FailureReporter, timeout: float) -> None:
        self._reporter = reporter
        self._timeout = timeout
        # Each work, the name of its operation, the ranks of its group, and its start in seconds.
        self._started: deque[tuple[Any, str, tuple[int, ...], float]] = deque()
        self._stopped = threading.Event()
        threading.Thread(target=self._poll, name="shardlab-watchdog", daemon=True).start()

    def watch(self, works: Iterable[Any], operation: str, members: tuple[int, ...]) -> None:
        """Add works that have just been started."""
        now = time.monotonic()
        self._started.extend((work, operation, members, now) for work in works)

    def close(self) -> None:
        """Stop polling."""
        self._stopped.set()

    def _poll(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            # Only the oldest: a later work of another group is polled once this one is done.
            while self._started:
                work, operation, members, started_at = self._started[0]
                try:
                    if work.is_completed():
                        self._started.popleft()
                        continue
                    if time.monotonic() - started_at < self._timeout:
                        break
                    failure: Exception = TimeoutError(f"not done after {self._timeout:g} s")
                except RuntimeError as error:  # the backend noticed first
                    failure = error
                if not self._stopped.is_set():
                    report = self._reporter.explain(operation, members, failure)
                    print(report, file=sys.stderr, flush=True)
                    os._exit(1)
