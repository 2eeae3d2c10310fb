"""The memory that the ranks share: a file in RAM, mapped by all, nameless as soon as they have it.

Life and death hang on one thing: each rank holds a lock on its own byte of the file. The kernel
drops it when the process ends, however it ends, so whoever can take a peer's lock knows that the
peer is gone, with no process id that may have been given to another program since. The name in
/dev/shm goes as soon as every rank has the file open; a rank that is killed later leaves nothing.
Only a death in the milliseconds before that leaves a file, which the next link sweeps away.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from shardlab.comm.faults import Store
from shardlab.comm.host import ProcessInfo, state_of
from shardlab.links.shared_memory.meeting import Meeting

_PREFIX = "shardlab-"
_RAM = Path("/dev/shm")  # noqa: S108  (the file is made there with O_EXCL, for its owner alone)


class Region:
    """The mapped file.

    Attributes:
        bytes: all of it, uint8.
        words: the same memory as int64, for flags.
    """

    def __init__(self, file: BinaryIO, cards: Sequence[ProcessInfo], me: int) -> None:
        self._file = file  # held open: closing any descriptor of the file would drop the lock
        self._cards = cards
        self._me = me
        size = os.fstat(file.fileno()).st_size
        populate = getattr(mmap, "MAP_POPULATE", 0)  # else the first use of each page is slow
        memory = mmap.mmap(file.fileno(), size, mmap.MAP_SHARED | populate)
        # Neither of the two may outlive `memory`; both hold a reference, and nothing closes it.
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self.words = memoryview(memory).cast("q")

    @classmethod
    def meet(cls, store: Store, ranks: Sequence[int], me: int, size: int, timeout: float) -> Region:
        """Make the file (the first rank) or open it (the others); return when all have it.

        Args:
            store: where the ranks meet; nobody else may use its keys "file" and "open/…".
            ranks: their numbers, for errors.
            me: this rank's place among them.
            size: bytes; the same on every rank.
            timeout: seconds to wait for the others.

        Raises:
            CollectiveError: a rank runs on another host, or did not come in time.
            OSError: there is no room for the file.
        """
        meeting = Meeting(store, ranks, me, timeout)
        path = None
        try:
            path = _create(size) if me == 0 else meeting.find()
            if me == 0:
                meeting.announce(path)
            file = _open(path, me)
            return cls(file, meeting.gather(path), me)
        except OSError as error:
            meeting.give_up(path, error)
            raise
        finally:
            if path:
                path.unlink(missing_ok=True)

    def alive(self, peer: int) -> bool:
        """Whether the process of rank `peer` still runs."""
        if self._cards[peer].pid == os.getpid():
            return True
        return _locked(self._file.fileno(), peer)

    def describe(self, peer: int) -> str:
        """Say which process `peer` is and how it is."""
        pid = self._cards[peer].pid
        return f"process {pid}, {state_of(pid) if self.alive(peer) else 'dead'}"

    def close(self) -> None:
        """Give the lock back; the memory goes when its last tensor goes."""
        self._file.close()


def folder() -> Path:
    """Return where files live in memory, or at least get lost in time."""
    return _RAM if os.access(_RAM, os.W_OK) else Path(tempfile.gettempdir())


def _create(size: int) -> Path:
    place = folder()
    _sweep(place)
    path = place / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            # Without it a full /dev/shm shows only when a page is written: as SIGBUS, with no word.
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno != errno.ENOSPC:
            raise
        raise OSError(
            errno.ENOSPC,
            f"{place} has no room for {size >> 20} MiB of shared memory. A container gets 64 MiB "
            'unless started with --shm-size; or use link="torch"',
        ) from error
    finally:
        os.close(descriptor)
    return path


def _open(path: Path, me: int) -> BinaryIO:
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    file = os.fdopen(descriptor, "r+b", buffering=0)
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, me)
    return file


def _locked(descriptor: int, byte: int) -> bool:
    """Whether another process holds the lock on `byte`."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
    except OSError:
        return True
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)
    return False


def _sweep(folder: Path) -> None:
    """Remove the files of links whose first rank died before they were nameless.

    Both must hold: its maker's process is gone, and nobody has the lock. The first alone would be
    fooled by another container's process ids, the second by a file made but not locked yet.
    """
    for path in folder.glob(f"{_PREFIX}*-*"):
        try:
            maker = int(path.name.removeprefix(_PREFIX).split("-")[0])
            if state_of(maker) != "dead":
                continue
            with path.open("r+b", buffering=0) as file:
                stale = not _locked(file.fileno(), 0)
            if stale:
                path.unlink(missing_ok=True)
        except (OSError, ValueError):  # another user's, or gone already
            continue
