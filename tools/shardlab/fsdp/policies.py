"""What FSDP shards, when it releases full parameters, and when it prefetches the next ones.

The names are PyTorch's (torch/distributed/fsdp/api.py). A strategy is two axes and a flag: each
unit's flat parameter is sharded along `shard`, its gradient is reduce-scattered along `shard` and
then all-reduced along `replicate`, and a unit releases its full parameters after forward or keeps
them.

    strategy            shard   replicate  after forward   ZeRO stage
    FULL_SHARD          axis    (alone)    released        3
    SHARD_GRAD_OP       axis    (alone)    kept            2
    HYBRID_SHARD        axis    replicate  released        3 inside, replicas outside
    HYBRID_SHARD_ZERO2  axis    replicate  kept            2 inside, replicas outside
    NO_SHARD            (alone) axis       never sharded   0, as DDP
"""

from __future__ import annotations

from enum import Enum, auto

from shardlab.comm import Axis


class ShardingStrategy(Enum):
    """What is sharded over which axis; see the module's table."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    HYBRID_SHARD = auto()
    HYBRID_SHARD_ZERO2 = auto()
    NO_SHARD = auto()

    @property
    def reshards_after_forward(self) -> bool:
        """Whether units are released after forward and gathered again for backward.

        The root never is, as in PyTorch, because backward begins with it.
        """
        return self in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)

    @property
    def is_hybrid(self) -> bool:
        """Whether it needs a second axis."""
        return self in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy.HYBRID_SHARD_ZERO2)

    def axes(self, axis: Axis, replicate: Axis | None) -> tuple[Axis, Axis]:
        """Return the axis over which parameters are sharded, and the axis of their replicas.

        Raises:
            ValueError: a hybrid strategy without `replicate`, or another strategy with it.
        """
        if self.is_hybrid and replicate is None:
            raise ValueError(
                f"{self.name} shards along one axis and replicates along another; pass "
                "replicate=…, say the ranks of equal place on every host"
            )
        if not self.is_hybrid and replicate is not None:
            raise ValueError(
                f"{self.name} has one axis and was given replicate={replicate.name!r}; "
                "choose HYBRID_SHARD, or leave it out"
            )
        alone = Axis.alone("alone")
        if self is ShardingStrategy.NO_SHARD:
            return alone, axis
        return axis, replicate or alone


class BackwardPrefetch(Enum):
    """When backward gathers the next unit, which is the previous one of forward.

    BACKWARD_PRE: before the current unit's gradients are computed, so that the all-gather overlaps
    with that computation; two units are unsharded at a time. BACKWARD_POST: after it, overlapping
    with the reduce-scatter; one unit is unsharded at a time. None instead of either: when the unit
    is needed.
    """

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()
