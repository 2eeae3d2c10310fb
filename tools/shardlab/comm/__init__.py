"""Ranks, groups of ranks and their collectives: the folder that calls torch.distributed.

A `World` is this process among all ranks. An `Axis` is one group of them (a row of the process
grid) with this rank's place in it; every layer gets the axis that it communicates over as an
argument, so two grids can live in one process and nothing is global.

    axis.py               the collectives that layers call: shapes, checks, errors
    point_to_point.py     messages from one rank of an axis to another
    pending.py            a collective that was started, and the errors of collectives
    world.py              joining and leaving a job; groups.py: backends, devices, process groups
    transport.py          what an axis needs of a link and of a world, as protocols
    torch_link.py         the default link, over torch.distributed
    consistency_check.py  compares the ranks' calls before each collective, where asked for
    tracing.py            labels for code that counts collectives
    faults.py             which rank failed, and why; host.py: a rank's host and process
    nccl_watchdog.py      the same for collectives on GPUs, where no call on the host fails
    collective_errors.py  raises one rank's error on every rank

The other links are in shardlab/links. `World` is imported at its first use, because a
layer needs `Axis` only.
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
