"""Ranks, groups of ranks, what they send each other: the only folder that calls torch.distributed.

A `World` is this process among all ranks. An `Axis` is one group of them (a row of the process
grid) with this rank's place in it; every layer gets the axis that it communicates over as an
argument, so two grids can live in one process and nothing is global.

    world.py       joining and leaving; process groups; which rank holds which device
    axis.py        the collectives as layers call them: shapes, checks, the ledger, faults
    point_to_point.py  its messages from one rank to another
    pending.py     a collective under way
    torch_link.py  an axis over gloo or NCCL
    (shardlab/shared_memory: an axis over the memory of one host)
"""

from shardlab.comm.axis import Axis
from shardlab.comm.faults import CollectiveError
from shardlab.comm.pending import Pending
from shardlab.comm.world import World

__all__ = ["Axis", "CollectiveError", "Pending", "World"]
