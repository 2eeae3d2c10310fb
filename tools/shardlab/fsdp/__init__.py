"""Fully sharded data parallel in a few hundred lines: see `fully_sharded.py`."""

from shardlab.fsdp.fully_sharded import FSDP
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.fsdp.policies import BackwardPrefetch, ShardingStrategy

__all__ = ["FSDP", "BackwardPrefetch", "MixedPrecision", "ShardingStrategy"]
