"""Waiting for another process: at first hot, then politely, and never for ever.

A flag in shared memory changes within a microsecond when the peer runs on another core, so the
first looks follow each other at once. If ranks outnumber cores the peer may need this very core,
so the next looks yield it each time. After that the rank sleeps between looks, ever longer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_YIELDING = 2e-3  # seconds of yielding before the sleeps begin
_LONGEST = 1e-3  # seconds of one sleep at most
_LOOK_AROUND = 5e-3  # seconds between two looks at whether the peer lives


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def until(ready: Callable[[], bool], watch: Callable[[float], None]) -> None:
    """Return once `ready()`; meanwhile call `watch(seconds waited)` now and then.

    `watch` raises to end the wait.
    """
    begin = time.monotonic()
    around = begin + _LOOK_AROUND
    while not ready():
        now = time.monotonic()
        if now - begin < _YIELDING:
            os.sched_yield()
        else:
            time.sleep(min(_LONGEST, (now - begin) / 32))
        if now >= around:
            watch(now - begin)
            around = now + _LOOK_AROUND


class Fence:
    """Orders this process's reads and writes of shared memory before it with those after it.

    A rank writes data, then the flag that says so; its peer reads the flag, then the data. x86-64
    keeps that order by itself (stores stay in order, and so do loads; the C library ends copies
    that bypass the cache with a fence of its own). Other machines, Arm among them, need a barrier
    between the two, and Python has none. But a lock is one when it is released and then taken
    again: what stands before the release may not sink below it, what stands after the acquire may
    not rise above it, and a release and a later acquire of one lock keep their own order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        """Put a barrier here."""
        self._lock.release()
        self._lock.acquire()
