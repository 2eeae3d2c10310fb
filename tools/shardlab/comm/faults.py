"""What a rank says when a collective cannot finish: who is missing, who raised, and where.

A backend reports a dead peer as a closed connection and a stopped one as a timeout, and names
neither. The ranks share a key-value store, so each one that gives up writes there what it was
doing; of one that wrote nothing by the end of a short grace period, its process tells the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from shardlab.comm.host import Card, state_of
from shardlab.comm.pending import CollectiveError


class Store(Protocol):
    """The calls of torch's stores that are used here."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Read a value that `check` found."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there, at once."""


class Witness:
    """This rank's word in the store about how its run ended, and its reading of the others'.

    Args:
        store: of the ranks.
        rank: this one, of `size`.
        grace: seconds to wait for the words of others that still live.
    """

    def __init__(self, store: Store, rank: int, size: int, *, grace: float = 2.0) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._grace = grace
        self._posted = False
        self._card = Card.own()
        store.set(f"place/{rank}", self._card.write())

    def all_on_this_host(self) -> bool:
        """Whether every rank runs on this one's host; waits until all have joined."""
        cards = (Card.read(self._store.get(f"place/{rank}")) for rank in range(self._size))
        return all(card.same_host(self._card) for card in cards)

    def post(self, what: str) -> None:
        """Write what became of this rank, once: the first word is the cause, later ones fallout."""
        if self._posted:
            return
        self._posted = True
        with contextlib.suppress(RuntimeError):  # the store may have died with its host
            self._store.set(f"fault/{self._rank}", what)

    def exchange(
        self, place: str, ranks: Sequence[int], words: str, seconds: float
    ) -> dict[int, str]:
        """Leave words at a place of the store; return those of each rank that comes in time."""
        self._store.set(f"{place}/{self._rank}", words)
        return self._words(ranks, seconds, place)

    def explain(self, doing: str, members: Iterable[int], error: BaseException) -> CollectiveError:
        """Return the error to raise in place of `error`, which the backend gave for `doing`.

        Waits up to the grace period for the words of other members that live. The group is of no
        use afterwards.
        """
        self.post(f"gave up in {doing}")
        others = [rank for rank in members if rank != self._rank]
        outside = [r for r in range(self._size) if r not in {*others, self._rank}]
        lines = [f"rank {self._rank}: {doing} did not finish."]
        try:
            words = self._words(others, self._grace)
            told = [self._told(rank, words.get(rank), doing) for rank in others]
            far = [f"rank {r} {w}" for r, w in self._words(outside, 0).items() if _is_cause(w)]
            lines += [f"  {line}" for line in [*told, *far] if line]
            if len(lines) == 1:
                lines.append("  Every other rank gave up too, in the same place.")
        except RuntimeError:
            lines.append("  The ranks' store is gone, and with it the process that held it.")
        said = str(error) or repr(error)
        lines.append(f"  The backend said: {said.splitlines()[0]}")
        return CollectiveError("\n".join(lines))

    def _told(self, rank: int, word: str | None, doing: str) -> str:
        """Say what became of a member; nothing of one that gave up where this one did."""
        if word is None:
            return f"rank {rank} {self._silence(rank)}"
        if _is_cause(word):
            return f"rank {rank} {word}"
        return "" if word == f"gave up in {doing}" else f"rank {rank} {word}, not here"

    def _silence(self, rank: int) -> str:
        """Say how the process of a rank without a word is."""
        card = self._card_of(rank)
        if card is None:
            return "never joined"
        if not card.same_host(self._card):
            return f"died, is stopped or hangs (process {card.pid} on {card.host})"
        how = {"dead": "died", "stopped": "is stopped", "alive": "hangs elsewhere, or is late"}
        return f"{how[state_of(card.pid)]} (process {card.pid})"

    def _card_of(self, rank: int) -> Card | None:
        key = f"place/{rank}"
        return Card.read(self._store.get(key)) if self._store.check([key]) else None

    def _words(self, ranks: Sequence[int], grace: float, place: str = "fault") -> dict[int, str]:
        """Return what each rank wrote at a place; waits for those that live and may still write."""
        end = time.monotonic() + grace
        words: dict[int, str] = {}
        while True:
            for rank in ranks:
                key = f"{place}/{rank}"
                if rank not in words and self._store.check([key]):
                    words[rank] = self._store.get(key).decode()
            silent = [rank for rank in ranks if rank not in words]
            if time.monotonic() >= end or not any(self._may_write(rank) for rank in silent):
                return words
            time.sleep(0.01)

    def _may_write(self, rank: int) -> bool:
        card = self._card_of(rank)
        return not (card and card.same_host(self._card) and state_of(card.pid) != "alive")


def _is_cause(word: str) -> bool:
    return not word.startswith("gave up")
