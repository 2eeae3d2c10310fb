"""The museum of compositions: lists its rooms, or runs some and prints their numbers.

    python experiments/36-compositions/museum.py
    python experiments/36-compositions/museum.py unequal-tokens strided-gloo

A room is a function of tensor_rooms.py, data_rooms.py, context_rooms.py, expert_rooms.py or
corpus_rooms.py. MUSEUM.md explains the numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

try:
    from room import ROOMS, Numbers

    from pages.ranks import run_on_ranks
    from shardlab.comm import World

    for kind in ("tensor", "data", "context", "expert", "corpus"):
        import_module(f"{kind}_rooms")  # adds its rooms to ROOMS
except ModuleNotFoundError as missing:
    sys.exit(
        f"museum.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )

Run = Callable[..., list[Any]]


def measure(names: Collection[str], run: Run = run_on_ranks) -> dict[str, Numbers]:
    """Run rooms; return their numbers, each the largest that any rank saw."""
    numbers = {}
    for size in sorted({ROOMS[name].ranks for name in names}):
        chosen = [name for name in names if ROOMS[name].ranks == size]
        ranks = run(size, show, chosen) if size else [show(None, chosen)]
        for name, seen in zip(chosen, zip(*ranks, strict=True), strict=True):
            keys = dict.fromkeys(key for rank in seen for key in rank)
            numbers[name] = {key: max(rank[key] for rank in seen if key in rank) for key in keys}
    return numbers


def show(world: World | None, names: list[str]) -> list[Numbers]:
    """Return what this rank sees in each room."""
    return [dict(ROOMS[name].body(world)) for name in names]


def main(names: list[str]) -> int:
    """List the rooms, or run those that are named; return the exit status."""
    if unknown := [name for name in names if name not in ROOMS]:
        print(
            f"museum.py: error: no room {unknown[0]!r}; choose {', '.join(ROOMS)}", file=sys.stderr
        )
        return 2
    if not names:
        for name, room in ROOMS.items():
            print(f"{name:32}  {(room.body.__doc__ or '').strip()}")
        return 0
    for name, numbers in measure(names).items():
        print(name)
        for key, number in numbers.items():
            print(f"  {key:20} {number:.6g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
