"""Run every room, keep what it showed, and write the pages.

python -m tests.shardlab.compositions.record
"""

from __future__ import annotations

import json
from functools import cache

from tests.shardlab.compositions import pages
from tests.shardlab.compositions.room import RECORD, ROOMS
from tests.shardlab.compositions.rooms import (  # noqa: F401  (their rooms)
    test_context_rooms,
    test_corpus_rooms,
    test_data_rooms,
    test_expert_rooms,
    test_tensor_rooms,
)
from tests.shardlab.pool import Pool


def main() -> None:
    """Replace the record by what the rooms show here."""
    pool = cache(Pool)
    try:
        seen = {name: room.seen(pool) for name, room in sorted(ROOMS.items())}
    finally:
        for size in {room.ranks for room in ROOMS.values()} - {0}:
            pool(size).stop()
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(seen, indent=1) + "\n", "utf-8")
    pages.main()


if __name__ == "__main__":
    main()
