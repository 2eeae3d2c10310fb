"""The link "staged": GPU tensors over gloo, through the host's memory, for ranks that share a GPU.

A world on gloo whose ranks have GPUs uses it automatically.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardlab.comm.torch_link import TorchLink
from shardlab.comm.world import World
from shardlab.links.staged.link import StagedLink


def connect(world: World, ranks: tuple[int, ...], existing_links: Iterable[Any]) -> StagedLink:
    """Return the link over `ranks`; `World.axis` calls this."""
    gloo = TorchLink(world.group(ranks), world.backend, world.device, world.collective_timeout)
    return StagedLink(gloo, world.device)
