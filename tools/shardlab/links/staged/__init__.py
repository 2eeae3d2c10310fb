"""Tensors of GPUs over gloo, by way of the host's memory: for ranks that share a GPU.

A world on gloo whose ranks have GPUs takes it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardlab.comm.torch_link import TorchLink
from shardlab.comm.world import World
from shardlab.links.staged.link import StagedLink


def connect(world: World, ranks: tuple[int, ...], beside: Iterable[Any]) -> StagedLink:
    """Return the link of an axis over `ranks`, which every member makes."""
    gloo = TorchLink(world.group(ranks), world.backend, world.device, world.collective_timeout)
    return StagedLink(gloo, world.device)
