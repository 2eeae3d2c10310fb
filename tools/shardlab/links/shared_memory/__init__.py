"""The link "shared-memory": ranks of one host communicate through memory that all of them map.

`link` has the collectives that an axis calls. It uses `region` (the mapped file, which the ranks
find by `rendezvous`), `layout` (the offsets in it), `plans` and `queue` (what each collective
copies into its slots and out of them, and when), `mailbox` (messages) and `waiting`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardlab.comm.transport import AxisWorld
from shardlab.links.shared_memory.link import SharedMemoryLink

__all__ = ["SharedMemoryLink", "connect"]


def connect(
    world: AxisWorld, ranks: tuple[int, ...], existing_links: Iterable[Any]
) -> SharedMemoryLink:
    """Return the link over `ranks`; `World.axis` calls this.

    Args:
        world: the world of the ranks.
        ranks: global ranks of one host, in order.
        existing_links: this process's shared-memory links, to which the caller adds this one. A
            wait on any of them makes progress on the messages of all.
    """
    store = world.store_for("shared-memory", ranks)
    return SharedMemoryLink(
        store, ranks, world.rank, timeout=world.collective_timeout, links=existing_links
    )
