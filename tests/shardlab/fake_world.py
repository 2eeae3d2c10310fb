"""One process as any rank of a world of any size: torch's fake backend, which moves no data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardlab.comm import World


@contextmanager
def alone(rank: int, size: int) -> Iterator[World]:
    """Rank `rank` of `size`; collectives return at once, with whatever their outputs held."""
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield World()
    finally:
        dist.destroy_process_group()
