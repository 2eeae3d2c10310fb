"""How the ranks of a shared-memory link find each other's file, through their store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shardlab.comm.faults import Store
from shardlab.comm.host import ProcessInfo
from shardlab.comm.pending import CollectiveError


class Meeting:
    """One meeting, through a store that may hold an earlier meeting's keys.

    A file's name is random, and gone once its meeting is over: a stale "file" key leads to nothing,
    and whoever reads one just looks again. "open" keys have the file in their name, since a rank
    may be in the next meeting while another still reads the words of this one.

    Args:
        store: nobody else may use its keys "file" and "open/…".
        ranks: the ranks' numbers, for errors.
        me: this rank's place among them; the first makes the file.
        timeout: seconds to wait for the others.
    """

    def __init__(self, store: Store, ranks: Sequence[int], me: int, timeout: float) -> None:
        self._store = store
        self._ranks = ranks
        self._me = me
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._process = ProcessInfo.current()

    def announce(self, path: Path) -> None:
        """Tell the others where the file is."""
        self._write("file", path)

    def give_up(self, path: Path | None, error: OSError) -> None:
        """Tell the others that this rank could not make the file (no path), or not open it."""
        if self._me == 0:
            self._write("file", None, str(error))
        if path:
            self._write(_opened(path, self._me), None, str(error))

    def find(self) -> Path:
        """Return where the first rank has made the file."""
        path, maker = self._await("file", 0, lambda at, card: self._elsewhere(card) or at.exists())
        if self._elsewhere(maker):
            self._write(_opened(path, self._me), path)  # so that the first rank learns of it too
            raise self._apart({0: maker, self._me: self._process})
        return path

    def gather(self, path: Path) -> list[ProcessInfo]:
        """Tell that this rank has the file open; return every rank's card once all have."""
        self._write(_opened(path, self._me), path)
        cards = [
            self._await(_opened(path, peer), peer, lambda *_: True)[1]
            for peer in range(len(self._ranks))
        ]
        if any(self._elsewhere(card) for card in cards):
            raise self._apart(dict(enumerate(cards)))
        return cards

    def _elsewhere(self, card: ProcessInfo) -> bool:
        return not self._process.same_host(card)

    def _write(self, key: str, path: Path | None, trouble: str = "") -> None:
        self._store.set(key, json.dumps([str(path or ""), self._process.to_json(), trouble]))

    def _await(
        self, key: str, peer: int, current: Callable[[Path, ProcessInfo], bool]
    ) -> tuple[Path, ProcessInfo]:
        pause = 2e-4
        while True:
            if self._store.check([key]):
                where, who, trouble = json.loads(self._store.get(key))
                if trouble:
                    raise CollectiveError(
                        f"rank {self._ranks[peer]} could not open the shared memory: {trouble}"
                    )
                path, card = Path(where), ProcessInfo.from_json(who)
                if current(path, card):
                    return path, card
            if time.monotonic() > self._end:
                raise self._late(peer)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _late(self, peer: int) -> CollectiveError:
        return CollectiveError(
            f"rank {self._ranks[self._me]}: rank {self._ranks[peer]} did not open the shared "
            f"memory of ranks {list(self._ranks)} within {self._timeout:g} s. Every member must "
            'ask for this axis with link="shared-memory", and see the same files in memory'
        )

    def _apart(self, cards: dict[int, ProcessInfo]) -> CollectiveError:
        places = [f"rank {self._ranks[r]} on {c.host} (boot {c.boot})" for r, c in cards.items()]
        return CollectiveError(
            f"the shared-memory link joins ranks of one host: {', '.join(places)}. "
            'Use link="torch" for this axis'
        )


def _opened(path: Path, peer: int) -> str:
    """Return the key of what `peer` says of the file."""
    return f"open/{path.name}/{peer}"
