"""A room of the museum: a fault where two parallelisms meet, as numbers that a body really saw.

A body runs on every rank and returns what that rank saw, by name; a room's number is the worst of
the ranks. `record` keeps them in experiments/36-compositions, the page is made from that, and a
test runs the body again and holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "experiments" / "36-compositions" / "results" / "seen.json"
ALIKE = {"rel": 1e-5, "abs": 1e-9}  # between machines: sums in fp32 come in another order
CHANGED = (
    "the source has fixed this, or the fault is another one: record the room again, and set `fixed`"
    " in rooms.toml"
)

Numbers = dict[str, float]
Body = Callable[..., Mapping[str, float]]


class Room(NamedTuple):
    """A body, and the ranks that it needs; 0: no process group, this process itself."""

    body: Body
    ranks: int

    def seen(self, pool: Any) -> Numbers:
        """Run the body; return the worst that any rank saw, by name."""
        if not self.ranks:
            return dict(self.body(None))
        ranks = pool(self.ranks).run(self.body)
        names = dict.fromkeys(name for rank in ranks for name in rank)
        return {name: max(rank[name] for rank in ranks if name in rank) for name in names}


ROOMS: dict[str, Room] = {}


def room(name: str, *, ranks: int) -> Callable[[Body], Body]:
    """Let a body be a room."""

    def add(body: Body) -> Body:
        ROOMS[name] = Room(body, ranks)
        return body

    return add


def recorded() -> dict[str, Numbers]:
    """What every room showed when the pages were written."""
    rooms: dict[str, Numbers] = json.loads(RECORD.read_text("utf-8"))
    return rooms


def shown(pool: Any, name: str) -> Numbers:
    """Run a room and hold it to the record; return its numbers."""
    numbers = ROOMS[name].seen(pool)
    assert numbers == pytest.approx(recorded()[name], **ALIKE), (
        f"{CHANGED}: `python -m tests.shardlab.compositions.record`"
    )
    return numbers
