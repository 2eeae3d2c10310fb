"""The link "staged": GPU tensors over gloo, through the host's memory, for ranks that share a GPU.

A world on gloo whose ranks have GPUs uses it automatically.
"""

from __future__ import annotations

from shardlab.comm.torch_link import TorchLink
from shardlab.comm.transport import AxisWorld
from shardlab.links.staged.link import StagedLink


def connect(world: AxisWorld, ranks: tuple[int, ...]) -> StagedLink:
    """Return the link over `ranks`."""
    gloo = TorchLink(world.group(ranks), world.backend, world.device, world.collective_timeout)
    return StagedLink(gloo, world.device)
