"""What a rank says when a collective cannot finish: who is missing, who raised, and where.

A backend reports a dead peer as a closed connection and a stopped one as a timeout, and names
neither. The ranks share a key-value store, so each one that gives up writes there what it was
doing; whoever wrote nothing by the end of a short grace period is the one to look for.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Protocol


class CollectiveError(RuntimeError):
    """A collective that did not finish, or was refused; names the ranks and the collective."""


class Store(Protocol):
    """The three calls of torch's stores that are used here."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Read a value that `check` found."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there, at once."""


class Witness:
    """This rank's word in the store about how its run ended, and its reading of the others'."""

    def __init__(self, store: Store, rank: int, size: int, *, grace: float = 2.0) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._grace = grace
        self._posted = False
        self._left = threading.Event()

    def post(self, what: str) -> None:
        """Write what became of this rank, once: the first word is the cause, later ones fallout."""
        if self._posted:
            return
        self._posted = True
        with contextlib.suppress(RuntimeError):  # the store may have died with its host
            self._store.set(f"fault/{self._rank}", what)
            self._store.set("fault/any", str(self._rank))

    def explain(self, doing: str, members: Iterable[int], error: BaseException) -> CollectiveError:
        """Return the error to raise in place of `error`, which the backend gave for `doing`.

        Waits up to the grace period for the other members' words. Must be called at most once for
        a failure: the group is of no use afterwards.
        """
        self.post(f"gave up in {doing}")
        others = [rank for rank in members if rank != self._rank]
        words = self._words(others)
        lines = [f"rank {self._rank}: {doing} did not finish."]
        for rank in others:
            word = words.get(rank)
            if word is None:
                lines.append(
                    f"  rank {rank} says nothing: it died, is stopped, or hangs elsewhere."
                )
            elif not word.startswith("gave up"):
                lines.append(f"  rank {rank} {word}")
            elif word != f"gave up in {doing}":
                lines.append(f"  rank {rank} {word}, not here")
        outside = self._words([r for r in range(self._size) if r not in {*others, self._rank}], 0)
        lines += [f"  rank {r} {w}" for r, w in outside.items() if not w.startswith("gave up")]
        if len(lines) == 1:
            lines.append("  every other rank gave up too, in the same place.")
        lines.append(f"  The backend said: {str(error).splitlines()[0] if str(error) else error!r}")
        return CollectiveError("\n".join(lines))

    def _words(self, ranks: list[int], grace: float | None = None) -> dict[int, str]:
        end = time.monotonic() + (self._grace if grace is None else grace)
        words: dict[int, str] = {}
        while True:
            try:
                for rank in ranks:
                    key = f"fault/{rank}"
                    if rank not in words and self._store.check([key]):
                        words[rank] = self._store.get(key).decode()
            except RuntimeError:
                return words
            if len(words) == len(ranks) or time.monotonic() >= end:
                return words
            time.sleep(0.01)

    def watch(self, *, every: float, patience: float) -> None:
        """Start a thread that ends this process if another rank failed and this one never notices.

        A rank that hangs outside any collective cannot learn of a failure by itself. `patience`
        seconds after the first word in the store the thread says so and ends the process.
        """
        thread = threading.Thread(
            target=self._watch, args=(every, patience), name="shardlab-watch", daemon=True
        )
        thread.start()

    def _watch(self, every: float, patience: float) -> None:
        while not self._left.wait(every):
            try:
                if not self._store.check(["fault/any"]):
                    continue
                first = int(self._store.get("fault/any"))
                word = self._store.get(f"fault/{first}").decode()
            except RuntimeError:
                first, word = -1, "that holds the store is gone"
            if self._left.wait(patience):
                return
            who = f"rank {first}" if first >= 0 else "the process"
            print(
                f"rank {self._rank}: ended because {who} {word}, and this rank hangs",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)

    def leave(self) -> None:
        """Stop watching: the run is over."""
        self._left.set()
