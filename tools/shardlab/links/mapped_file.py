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
import json
import mmap
import os
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from shardlab.comm.host import ProcessInfo, state_of
from shardlab.comm.pending import CollectiveError

WORD = 8
LINE = 16  # words: two cache lines, since processors fetch them in pairs
DEPTH = 2  # slots of a rank: one is filled while the peers read from the other
CELLS = 4  # cells of a mailbox
HEADER = 3  # words that describe a cell: tag, signature, bytes of the whole message
_PAGE = 4096
_MAILBOXES = 8 << 20  # bytes for all mailboxes together, more or less
_PREFIX = "shardlab-"
_RAM = Path("/dev/shm")  # noqa: S108  (the file is made there with O_EXCL, for its owner alone)


class Region:
    """The mapped file: flags, slots for collectives, mailboxes for messages.

    Args:
        store: the ranks' key-value store (`set`, `get`, `check`, `add`), with a prefix of its own.
        ranks: the members' global ranks, for errors.
        me: this rank's index among them; rank 0 makes the file.
        slot: bytes of a slot, a multiple of the page size.
        timeout: seconds to wait until all ranks have opened the file.

    Attributes:
        words: the memory as int64. Each rank has two lines of flags and each ordered pair of ranks
            has two; each line has one writer.
        slots: uint8 [ranks, DEPTH, slot]: what a rank puts into a collective, for all to read.
        cells: uint8 [ranks, ranks, CELLS, cell]: what one rank sends to another.

    Raises:
        CollectiveError: a rank runs on another host, or did not open the file in time.
        OSError: the file doesn't fit.
    """

    def __init__(
        self, store: Any, ranks: Sequence[int], me: int, *, slot: int, timeout: float
    ) -> None:
        self._count = count = len(ranks)
        self._me = me
        cell = _MAILBOXES // (count * count * CELLS) // _PAGE * _PAGE
        cell = max(_PAGE, min(128 << 10, cell))
        slots = -(-2 * (count + count * count) * LINE * WORD // _PAGE) * _PAGE
        cells = slots + count * DEPTH * slot
        size = cells + count * count * CELLS * cell
        self._file, self._processes = _rendezvous(_Board(store, ranks, me, timeout), me, size)
        populate = getattr(mmap, "MAP_POPULATE", 0)  # otherwise the first use of a page is slow
        memory = mmap.mmap(self._file.fileno(), size, mmap.MAP_SHARED | populate)
        # None of these may outlive `memory`; each holds a reference, and nothing closes it.
        self.words = memoryview(memory).cast("q")
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        self.slots = whole[slots:cells].view(count, DEPTH, slot)
        self.cells = whole[cells:].view(count, count, CELLS, cell)

    def posted_word(self, rank: int) -> int:
        """Return the index of the word that counts `rank`'s puts; its DEPTH signatures follow."""
        return 2 * rank * LINE

    def taken_word(self, rank: int) -> int:
        """Return the index of the word that counts `rank`'s takes; its "has left" flag follows."""
        return (2 * rank + 1) * LINE

    def sent_word(self, source: int, to: int) -> int:
        """Return the index of the word that counts the filled cells; their headers follow."""
        return 2 * (self._count + source * self._count + to) * LINE

    def received_word(self, source: int, to: int) -> int:
        """Return the index of the word that counts the cells that the receiver has emptied."""
        return self.sent_word(source, to) + LINE

    def has_left(self, peer: int) -> bool:
        """Return whether rank `peer` has closed its link."""
        return bool(self.words[self.taken_word(peer) + 1])

    def is_alive(self, peer: int) -> bool:
        """Return whether the process of rank `peer` still runs."""
        return _is_locked(self._file.fileno(), peer)

    def describe(self, peer: int) -> str:
        """Return a peer's process id and state, for an error message."""
        pid = self._processes[peer].pid
        return f"process {pid}, {state_of(pid) if self.is_alive(peer) else 'dead'}"

    def close(self) -> None:
        """Say that this rank leaves, and release its lock; the last tensor frees the memory."""
        self.words[self.taken_word(self._me) + 1] = 1
        self._file.close()


class _Board:
    """What the ranks write for each other in the store while they meet.

    A rank's nth meeting on a store shares keys with the other ranks' nth meeting only.
    """

    def __init__(self, store: Any, ranks: Sequence[int], me: int, timeout: float) -> None:
        self._store, self._ranks, self._me, self._timeout = store, ranks, me, timeout
        self._number = store.add(f"meetings/{me}", 1)
        self._end = time.monotonic() + timeout
        self._process = ProcessInfo.current()
        self.size = len(ranks)

    def write(self, key: str, text: str = "", *, error: str = "") -> None:
        """Write a text, or why there is none."""
        self._store.set(f"{self._number}/{key}", json.dumps([self._process.to_json(), text, error]))

    def read(self, key: str, peer: int) -> tuple[ProcessInfo, str]:
        """Wait for what rank `peer` writes; return its process and its text.

        Raises:
            CollectiveError: the peer gave up, runs on another host, or wrote nothing in time.
        """
        key, pause = f"{self._number}/{key}", 2e-4
        while not self._store.check([key]):
            if time.monotonic() > self._end:
                raise CollectiveError(
                    f"rank {self._ranks[self._me]}: rank {self._ranks[peer]} did not open the "
                    f"shared memory of ranks {list(self._ranks)} within {self._timeout:g} s. Every "
                    'member must ask for this axis with link="shared-memory"'
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        process_text, text, error = json.loads(self._store.get(key))
        process = ProcessInfo.from_json(process_text)
        if error:
            raise CollectiveError(
                f"rank {self._ranks[peer]} could not open the shared memory: {error}"
            )
        if not self._process.same_host(process):
            pair = sorted([(self._ranks[peer], process), (self._ranks[self._me], self._process)])
            places = ", ".join(f"rank {rank} on {p.host} (boot {p.boot})" for rank, p in pair)
            raise CollectiveError(
                f'the shared-memory link joins ranks of one host: {places}. Use link="torch" for '
                "this axis"
            )
        return process, text


def _rendezvous(board: _Board, me: int, size: int) -> tuple[BinaryIO, list[ProcessInfo]]:
    """Make the file (rank 0) or open it (the other ranks); return when all have opened it.

    The file stays open: closing any descriptor of it would release the lock.
    """
    path = None
    try:
        if me == 0:
            path = _create(size)
            board.write("file", str(path))
        else:
            path = Path(board.read("file", 0)[1])
        file = _open(path, me)
        board.write(f"open/{me}")
        return file, [board.read(f"open/{peer}", peer)[0] for peer in range(board.size)]
    except (OSError, CollectiveError) as error:
        for key in ["file"] * (me == 0) + [f"open/{me}"]:
            board.write(key, error=str(error))
        raise
    finally:
        if path:
            path.unlink(missing_ok=True)


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
