"""The check that both ends of a message mean the same tensor, before the backend sees it.

Each end writes into the ranks' store what it sends or expects, looks whether the other end has
done so, and only then starts. Whoever comes second sees the difference and doesn't start; whoever
came first finds it in `wait`. Nobody blocks in the start, so the check adds no deadlock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from shardlab.comm.faults import CollectiveError, PeerLostError
from shardlab.comm.faults import Store as _Store


class Store(_Store, Protocol):
    """A store that can forget, too."""

    def delete_key(self, key: str) -> bool:
        """Remove a key."""


class Announcements:
    """What this rank has announced so far.

    Args:
        store: of the ranks.
        timeout: seconds to wait for the other end.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._count: Counter[tuple[tuple[int, ...], int, int, int]] = Counter()

    def announce(
        self, axis: str, ranks: Sequence[int], ends: tuple[int, int], tag: int, x: Tensor, *,
        sent: bool,
    ) -> Announcement:  # fmt: skip
        """Announce one end of a message.

        Args:
            axis: its name, for errors.
            ranks: the members of the axis.
            ends: the ranks of sender and receiver.
            tag: of the message.
            x: what is sent or expected.
            sent: which of the two.

        Raises:
            CollectiveError: the other end has announced something else.
        """
        key = (tuple(ranks), *ends, tag)
        number = self._count[key]
        self._count[key] += 1
        source, to = ends
        group = "-".join(map(str, ranks))
        place = f"message/{group}/{source}-{to}/{tag}/{number}"
        announcement = Announcement(self._store, place, axis, ends, tag, sent=sent)
        announcement.begin(x, self._timeout)
        return announcement


class Announcement:
    """One end's word on a message, and the wait for the other's."""

    def __init__(
        self, store: Store, place: str, axis: str, ends: tuple[int, int], tag: int, *, sent: bool
    ) -> None:
        self._store = store
        self._keys = (f"{place}/sent", f"{place}/expected")[:: 1 if sent else -1]
        self._axis = axis
        self._ends = ends
        self._tag = tag
        self._sent = sent
        self._mine = ""
        self._seen = False

    def begin(self, x: Tensor, timeout: float) -> None:
        """Write this end's word and compare it with the other's, if that is there."""
        self._mine = f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        self._end = time.monotonic() + timeout
        self._store.set(self._keys[0], self._mine)
        self._look()

    def wait(self) -> None:
        """Wait for the other end's word and compare it.

        Raises:
            CollectiveError: the two differ; names both.
            PeerLostError: it never came.
        """
        pause = 1e-4
        while not self._look():
            if time.monotonic() > self._end:
                raise PeerLostError("the other end never announced the message")
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def _look(self) -> bool:
        if self._seen:
            return True
        other = self._keys[1]
        if not self._store.check([other]):
            return False
        self._seen = True
        theirs = self._store.get(other).decode()
        self._store.delete_key(other)  # only this end reads it
        if theirs != self._mine:
            sent, expected = (self._mine, theirs) if self._sent else (theirs, self._mine)
            source, to = self._ends
            raise CollectiveError(
                f"rank {source} of the {self._axis} axis sends {sent}, "
                f"but the receiver, rank {to}, expects {expected} (tag {self._tag})"
            )
        return True
