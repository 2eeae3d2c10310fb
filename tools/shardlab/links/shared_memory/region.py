"""The memory that the ranks share: a file in RAM that all map, unlinked once all have opened it.

Each rank holds a lock on its own byte of the file. The kernel releases the lock when the process
ends, however it ends. A rank that can lock a peer's byte therefore knows that the peer has ended,
without a process id, which may belong to another program by then. The file's name is removed from
/dev/shm as soon as every rank has opened the file, so a rank that is killed later leaves no file. A
rank that dies in the milliseconds before that leaves a file, which the next link removes.
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
from shardlab.links.shared_memory.rendezvous import Rendezvous

_PREFIX = "shardlab-"
_RAM = Path("/dev/shm")  # noqa: S108  (the file is made there with O_EXCL, for its owner alone)


class Region:
    """The mapped file.

    Attributes:
        bytes: the whole memory, uint8.
        words: the same memory as int64, for flags.
    """

    def __init__(self, file: BinaryIO, processes: Sequence[ProcessInfo], me: int) -> None:
        self._file = file  # held open: closing any descriptor of the file would drop the lock
        self._processes = processes
        self._me = me
        size = os.fstat(file.fileno()).st_size
        populate = getattr(mmap, "MAP_POPULATE", 0)  # otherwise the first use of a page is slow
        memory = mmap.mmap(file.fileno(), size, mmap.MAP_SHARED | populate)
        # Neither of the two may outlive `memory`; both hold a reference, and nothing closes it.
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self.words = memoryview(memory).cast("q")

    @classmethod
    def rendezvous(
        cls, store: Store, ranks: Sequence[int], me: int, size: int, timeout: float
    ) -> Region:
        """Make the file (rank 0) or open it (the other ranks); return when all have opened it.

        Args:
            store: a store whose keys "file" and "open/…" only this link uses.
            ranks: the members' global ranks, for errors.
            me: this rank's index among them.
            size: bytes; the same on every rank.
            timeout: seconds to wait for the other ranks.

        Raises:
            CollectiveError: a rank runs on another host, or did not open the file in time.
            OSError: the file doesn't fit.
        """
        rendezvous = Rendezvous(store, ranks, me, timeout)
        path = None
        try:
            path = _create(size) if me == 0 else rendezvous.find()
            if me == 0:
                rendezvous.announce(path)
            file = _open(path, me)
            return cls(file, rendezvous.gather(path), me)
        except OSError as error:
            rendezvous.give_up(path, error)
            raise
        finally:
            if path:
                path.unlink(missing_ok=True)

    def is_alive(self, peer: int) -> bool:
        """Return whether the process of rank `peer` still runs."""
        if self._processes[peer].pid == os.getpid():
            return True
        return _is_locked(self._file.fileno(), peer)

    def describe(self, peer: int) -> str:
        """Return a peer's process id and state, for an error message."""
        pid = self._processes[peer].pid
        return f"process {pid}, {state_of(pid) if self.is_alive(peer) else 'dead'}"

    def close(self) -> None:
        """Release the lock; the memory is freed with its last tensor."""
        self._file.close()


def folder() -> Path:
    """Return the folder of files in memory (/dev/shm), or the temporary folder without it."""
    return _RAM if os.access(_RAM, os.W_OK) else Path(tempfile.gettempdir())


def _create(size: int) -> Path:
    place = folder()
    _remove_stale(place)
    path = place / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            # Without this, a full /dev/shm ends the process by SIGBUS when a page is written.
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


def _is_locked(descriptor: int, byte: int) -> bool:
    """Return whether another process holds the lock on `byte`."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
    except OSError:
        return True
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)
    return False


def _remove_stale(folder: Path) -> None:
    """Remove the files of links whose first rank died before it could unlink them.

    A file is stale if its maker's process is dead and no process holds the lock. Both conditions
    are needed: a process of another container has another id here, and a new file isn't locked yet.
    """
    for path in folder.glob(f"{_PREFIX}*-*"):
        try:
            pid = int(path.name.removeprefix(_PREFIX).split("-")[0])
            if state_of(pid) != "dead":
                continue
            with path.open("r+b", buffering=0) as file:
                stale = not _is_locked(file.fileno(), 0)
            if stale:
                path.unlink(missing_ok=True)
        except (OSError, ValueError):  # another user's, or gone already
            continue
