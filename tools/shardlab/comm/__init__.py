"""Ranks, groups of ranks, what they send each other: the folder that calls torch.distributed.

A `World` is this process among all ranks. An `Axis` is one group of them (a row of the process
grid) with this rank's place in it; every layer gets the axis that it communicates over as an
argument, so two grids can live in one process and nothing is global.

    axis.py        the collectives as layers call them: shapes, checks, faults
    point_to_point.py  its messages from one rank to another
    pending.py     a collective under way, and what is raised where one does not finish
    observed.py    what whoever counts is told
    world.py       joining and leaving, which rank holds which device; groups.py: process groups
    torch_link.py  an axis over torch.distributed
    faults.py      what is said of ranks that failed; host.py: where a rank is; late.py: on GPUs

Other ways to carry an axis are folders of shardlab/links. `World` is loaded when it is asked for: a
layer needs an axis, and no more.
"""

from typing import TYPE_CHECKING, Any

from shardlab.comm.axis import Axis
from shardlab.comm.pending import CollectiveError, Pending

if TYPE_CHECKING:
    from shardlab.comm.world import World

__all__ = ["Axis", "CollectiveError", "Pending", "World"]


def __getattr__(name: str) -> Any:
    """Load `World`."""
    if name == "World":
        from shardlab.comm.world import World

        return World
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
