"""The link "shared-memory": ranks of one host, through memory that they all map.

`link` is what carries an axis. Below: `region` (the mapped file), `layout` (what lies where in it),
`plans` and `queue` (what is put in and taken out, and when), `mailbox` (messages), `patience`
(waiting).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardlab.comm import World
from shardlab.links.shared_memory.link import SharedMemoryLink

__all__ = ["SharedMemoryLink", "connect"]


def connect(world: World, ranks: tuple[int, ...], beside: Iterable[Any]) -> SharedMemoryLink:
    """Return the link over `ranks`, as `World.axis` asks for it.

    Args:
        world: of the ranks.
        ranks: of one host, in order.
        beside: this process's other shared-memory links, and this one once it is made: a wait on
            one moves the messages of all.
    """
    store = world.store_for("shared-memory", ranks)
    return SharedMemoryLink(
        store, ranks, world.rank, timeout=world.collective_timeout, beside=beside
    )
