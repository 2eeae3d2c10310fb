"""The memory that the ranks share: a file in RAM, mapped by all and nameless as soon as they have it.

Life and death hang on one thing: each rank holds a lock on its own byte of the file. The kernel
drops it when the process ends, however it ends, so whoever can take a peer's lock knows that the
peer is gone, with no process id that may have been given to another program since. The name in
/dev/shm goes as soon as every rank has the file open; a rank that is killed later leaves nothing.
Only a death in the milliseconds before that leaves a file, which the next link sweeps away.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from shardlab.faults import CollectiveError, Store
from shardlab.shared_memory.host import Card, parse, state_of

_PREFIX = "shardlab-"
_RAM = Path("/dev/shm")  # noqa: S108  (the file is made there with O_EXCL, for its owner alone)


class Region:
    """The mapped file.

    Attributes:
        bytes: all of it, uint8.
        words: the same memory as int64, for flags.
    """

    def __init__(self, file: BinaryIO, cards: Sequence[Card], me: int) -> None:
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
    def meet(
        cls, store: Store, ranks: Sequence[int], me: int, size: int, timeout: float
    ) -> Region:
        """Make the file (the first rank) or open it (the others); return when all have it.

        Args:
            store: where the ranks meet; nobody else may use its keys "file" and "open/N".
            ranks: their numbers, for errors.
            me: this rank's place among them.
            size: bytes; the same on every rank.
            timeout: seconds to wait for the others.

        Raises:
            CollectiveError: a rank runs on another host, or did not come in time.
            OSError: there is no room for the file.
        """
        meeting = _Meeting(store, ranks, me, timeout)
        path = _create(size) if me == 0 else None
        try:
            path = meeting.announce(path) if path else meeting.find()
            file = _open(path, me)
            cards = meeting.gather(path)
            return cls(file, cards, me)
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


class _Meeting:
    """How the ranks find the file, through a store that may hold an earlier meeting's keys.

    A file's name is random and is gone once its meeting is over, so a stale "file" key leads to
    nothing and a stale "open" key names another file: whoever reads one just looks again.
    """

    def __init__(self, store: Store, ranks: Sequence[int], me: int, timeout: float) -> None:
        self._store = store
        self._ranks = ranks
        self._me = me
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._card = Card.own()

    def announce(self, path: Path) -> Path:
        """Tell the others where the file is."""
        self._write("file", path)
        return path

    def find(self) -> Path:
        """Return where the first rank has made the file."""
        path, maker = self._await("file", 0, lambda path, card: self._elsewhere(card) or path.exists())
        if self._elsewhere(maker):
            self._write(f"open/{self._me}", path)  # so that the first rank learns of it too
            raise self._apart({0: maker, self._me: self._card})
        return path

    def gather(self, path: Path) -> list[Card]:
        """Tell that this rank has the file open; return every rank's card once all have."""
        self._write(f"open/{self._me}", path)
        cards = [
            self._await(f"open/{peer}", peer, lambda opened, _: opened == path)[1]
            for peer in range(len(self._ranks))
        ]
        if any(self._elsewhere(card) for card in cards):
            raise self._apart(dict(enumerate(cards)))
        return cards

    def _elsewhere(self, card: Card) -> bool:
        return not self._card.same_host(card)

    def _write(self, key: str, path: Path) -> None:
        self._store.set(key, json.dumps({"path": str(path), **self._card.fields()}))

    def _await(
        self, key: str, peer: int, current: Callable[[Path, Card], bool]
    ) -> tuple[Path, Card]:
        pause = 2e-4
        while True:
            if self._store.check([key]):
                fields = parse(self._store.get(key))
                path = Path(str(fields["path"]))
                card = Card(str(fields["host"]), str(fields["boot"]), int(fields["pid"]))
                if current(path, card):
                    return path, card
            if time.monotonic() > self._end:
                raise CollectiveError(
                    f"rank {self._ranks[self._me]}: rank {self._ranks[peer]} did not open the shared "
                    f"memory of ranks {list(self._ranks)} within {self._timeout:g} s. Every member "
                    'must ask for this axis with link="shared-memory", on one host and with one '
                    f"{_folder()}."
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _apart(self, cards: dict[int, Card]) -> CollectiveError:
        places = ", ".join(f"rank {self._ranks[r]} on {card.host}" for r, card in cards.items())
        return CollectiveError(
            f"the shared-memory link joins ranks of one host, but {places} (boot ids "
            f'{sorted({card.boot for card in cards.values()})}). Use link="torch" for this axis.'
        )


def _folder() -> Path:
    return _RAM if os.access(_RAM, os.W_OK) else Path(tempfile.gettempdir())


def _create(size: int) -> Path:
    folder = _folder()
    _sweep(folder)
    path = folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
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
            f"{folder} has no room for {size >> 20} MiB of shared memory. A container gets 64 MiB "
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
            if _runs(maker):
                continue
            with path.open("r+b", buffering=0) as file:
                stale = not _locked(file.fileno(), 0)
            if stale:
                path.unlink(missing_ok=True)
        except (OSError, ValueError):  # another user's, or gone already
            continue


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return state_of(pid) != "dead"
