"""Waiting for another process: at first hot, then politely or in the kernel, and never for ever.

A flag in shared memory changes within a microsecond when the peer runs on another core, so the
first looks follow each other at once. The next ones yield the core each time, which costs nothing
while nobody else wants it. Where somebody does, a yield gives him a whole slice, milliseconds; but
a sleeper that is woken gets its core back at once. So as soon as a yield was long, and in any case
in the end, the rank lies down: it says so in a word of the shared memory, its bell, and sleeps in
the kernel (Linux's futex) until a peer that writes a flag sees that and rings.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable

_YIELDING = 1e-3  # seconds of yielding before the sleep
_LONG = 5e-5  # seconds that a yield takes only where somebody else ran
_SHARED = 1.0  # seconds for which the core then counts as shared
_NAP = 1e-3  # seconds of one sleep at most: if a ring is missed, and to look after other links
_LOOK_AROUND = 5e-3  # seconds between two looks at whether the peer lives
_FUTEX = {"x86_64": 202, "aarch64": 98}  # the system call's number
_WAIT, _WAKE = 0, 1


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Bells:
    """A word for each rank of a link: 1 while it sleeps.

    Writers ring after each flag that a sleeper may wait for. That costs them a look. The look may,
    within nanoseconds, come too early, as no fence stands before it: then the sleeper is late by a
    nap.

    Args:
        words: the region's flags.
        address: of the first of them.
        places: of the bells among them, rank by rank.
        me: this rank's place.

    Attributes:
        yields_from: when to yield again instead of lying down at once.
    """

    def __init__(self, words: memoryview, address: int, places: list[int], me: int) -> None:
        self.yields_from = 0.0
        self._words = words
        self._address = address
        self._mine = places[me]
        self._others = [place for rank, place in enumerate(places) if rank != me]
        self._places = places
        number = _FUTEX.get(platform.machine()) if sys.platform == "linux" else None
        self._call = _system_call() if number and sys.byteorder == "little" else None
        self._number = number
        self._nap = (ctypes.c_long * 2)(0, int(_NAP * 1e9))

    def ring(self, rank: int) -> None:
        """Wake `rank` if it sleeps."""
        if self._words[self._places[rank]]:
            self._wake(self._places[rank])

    def ring_all(self) -> None:
        """Wake every other rank that sleeps."""
        words = self._words
        for place in self._others:
            if words[place]:
                self._wake(place)

    def sleep_unless(self, ready: Callable[[], bool]) -> bool:
        """Return whether `ready()`; if not, sleep until somebody rings, or a nap long."""
        self._words[self._mine] = 1
        if ready():
            self._words[self._mine] = 0
            return True
        if self._call is None:
            time.sleep(_NAP / 10)
        else:
            at = self._address + 8 * self._mine
            self._call(self._number, at, _WAIT, 1, self._nap, None, 0)
        self._words[self._mine] = 0
        return False

    def _wake(self, place: int) -> None:
        self._words[place] = 0
        if self._call is not None:
            self._call(self._number, self._address + 8 * place, _WAKE, 1, None, None, 0)


def until(ready: Callable[[], bool], watch: Callable[[float], None], bells: Bells) -> None:
    """Return once `ready()`; meanwhile call `watch(seconds waited)` now and then.

    `watch` raises to end the wait.
    """
    begin = now = time.monotonic()
    around = begin + _LOOK_AROUND
    while not ready():
        before = now
        if before - begin < _YIELDING and before >= bells.yields_from:
            os.sched_yield()
            now = time.monotonic()
            if now - before > _LONG:
                bells.yields_from = now + _SHARED
        elif bells.sleep_unless(ready):
            return
        else:
            now = time.monotonic()
        if now >= around:
            watch(now - begin)
            around = now + _LOOK_AROUND


def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None).syscall
    pointer, number = ctypes.c_void_p, ctypes.c_int
    call.argtypes = [ctypes.c_long, pointer, number, number, pointer, pointer, number]
    call.restype = ctypes.c_long
    return call


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
