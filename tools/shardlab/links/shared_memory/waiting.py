"""Waiting for another process: spin first, then yield the core, then sleep in the kernel.

If the peer runs on another core, a flag in shared memory changes within a microsecond, so a rank
first reads the flag again and again. Then it yields its core between two reads. A yield costs
nothing while no other process wants the core. If one does, it gets a whole time slice,
milliseconds, whereas a rank that sleeps gets its core back as soon as it is woken. So after a long
yield, or after some time in any case, the rank sleeps: it sets its sleeping flag in the shared
memory and waits in the kernel (Linux's futex) until a peer that writes a flag wakes it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable

_YIELD_SECONDS = 1e-3  # a rank yields so long before it sleeps
_LONG_YIELD_SECONDS = 5e-5  # a yield takes longer than this only if another process ran
_SHARED_CORE_SECONDS = 1.0  # for so long after a long yield the core counts as shared
_SLEEP_SECONDS = 1e-3  # of one sleep at most, in case a wake-up is missed, and for the other links
_CHECK_SECONDS = 5e-3  # between two checks that the peer is alive
_FUTEX = {"x86_64": 202, "aarch64": 98}  # the system call's number
_WAIT, _WAKE = 0, 1


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class FutexWaiter:
    """Puts this rank to sleep and wakes its peers, by a sleeping flag for each rank of a link.

    A rank's sleeping flag is 1 while it sleeps. After each write that a peer may wait for, a rank
    reads the peers' sleeping flags and wakes those that sleep. No fence orders that read after the
    write, so within some nanoseconds it may miss a flag; that peer then sleeps to the end of its
    `_SLEEP_SECONDS`.

    Args:
        words: the region's flags.
        address: the address of the first word.
        flags: the index of each rank's sleeping flag in `words`.
        me: this rank's index.

    Attributes:
        yields_after: the time until which this rank sleeps at once instead of yielding first.
    """

    def __init__(self, words: memoryview, address: int, flags: list[int], me: int) -> None:
        self.yields_after = 0.0
        self._words = words
        self._address = address
        self._flag = flags[me]
        self._peer_flags = [place for rank, place in enumerate(flags) if rank != me]
        self._flags = flags
        number = _FUTEX.get(platform.machine()) if sys.platform == "linux" else None
        self._call = _system_call() if number and sys.byteorder == "little" else None
        self._number = number
        self._nap = (ctypes.c_long * 2)(0, int(_SLEEP_SECONDS * 1e9))

    def wake(self, rank: int) -> None:
        """Wake `rank` if it sleeps."""
        if self._words[self._flags[rank]]:
            self._wake_flag(self._flags[rank])

    def wake_all(self) -> None:
        """Wake every peer that sleeps."""
        words = self._words
        for flag in self._peer_flags:
            if words[flag]:
                self._wake_flag(flag)

    def sleep_unless(self, ready: Callable[[], bool]) -> bool:
        """Return whether `ready()`; if not, sleep until a peer wakes this rank, or a short time."""
        self._words[self._flag] = 1
        if ready():
            self._words[self._flag] = 0
            return True
        if self._call is None:
            time.sleep(_SLEEP_SECONDS / 10)
        else:
            address = self._address + 8 * self._flag
            self._call(self._number, address, _WAIT, 1, self._nap, None, 0)
        self._words[self._flag] = 0
        return False

    def _wake_flag(self, flag: int) -> None:
        self._words[flag] = 0
        if self._call is not None:
            self._call(self._number, self._address + 8 * flag, _WAKE, 1, None, None, 0)


def spin_then_wait(
    ready: Callable[[], bool], check_peer: Callable[[float], None], waiter: FutexWaiter
) -> None:
    """Return once `ready()` is true.

    Args:
        ready: the condition.
        check_peer: called with the seconds waited, every few milliseconds; it raises an error to
            end the wait.
        waiter: puts this rank to sleep.
    """
    begin = now = time.monotonic()
    next_check = begin + _CHECK_SECONDS
    while not ready():
        previous = now
        if previous - begin < _YIELD_SECONDS and previous >= waiter.yields_after:
            os.sched_yield()
            now = time.monotonic()
            if now - previous > _LONG_YIELD_SECONDS:
                waiter.yields_after = now + _SHARED_CORE_SECONDS
        elif waiter.sleep_unless(ready):
            return
        else:
            now = time.monotonic()
        if now >= next_check:
            check_peer(now - begin)
            next_check = now + _CHECK_SECONDS


def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None).syscall
    pointer, number = ctypes.c_void_p, ctypes.c_int
    call.argtypes = [ctypes.c_long, pointer, number, number, pointer, pointer, number]
    call.restype = ctypes.c_long
    return call


class Fence:
    """A memory fence: orders this process's earlier reads and writes before its later ones.

    A rank writes data, then a flag; its peer reads the flag, then the data. x86-64 keeps that order
    by itself: stores stay in order, loads do too, and the C library ends copies that bypass the
    cache with a fence. Other machines, such as Arm, need a fence in between, and Python has none.
    Releasing a lock and acquiring it again is one: no access before the release moves behind it, no
    access after the acquire moves before it, and the release and the acquire keep their order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        """Order all earlier accesses before all later ones."""
        self._lock.release()
        self._lock.acquire()
