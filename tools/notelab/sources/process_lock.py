"""One process at a time, for as long as it lives: the lock goes with the process that held it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the block runs, waiting for whoever has it.

    Raises:
        OSError: the lock file can't be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(descriptor)
        yield
    finally:
        os.close(descriptor)  # which releases it too


def _acquire(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:
        _acquire_elsewhere(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _acquire_elsewhere(descriptor: int) -> None:
    import msvcrt

    while True:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            time.sleep(0.2)
        else:
            return
