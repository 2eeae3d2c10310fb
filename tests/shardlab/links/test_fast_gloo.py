"""The link "fast-gloo": its exchanges against plain arithmetic, and what the ledger counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pages.ranks import alone
from shardlab.comm import World
from shardlab.links.fast_gloo import COPIED_BYTES, FastGlooLink
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

LARGE = COPIED_BYTES // 4 + 1  # elements of fp32 that are not copied for each rank


def make_link(world: World) -> FastGlooLink:
    return FastGlooLink(world, tuple(range(world.size)))


def reduce_tensors(tensors: list[Tensor], op: str) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = torch.maximum(total, tensor) if op == "max" else total + tensor
    return total


@pytest.mark.parametrize("size", [2, 4])
@on_ranks("size")
def test_a_reduce_scatter_adds_in_rank_order(world: World) -> None:
    link, n, me = make_link(world), world.size, world.rank
    for count in (7, 5_000):
        inputs = [
            torch.randn(n * count, generator=torch.Generator().manual_seed(r)) for r in range(n)
        ]
        out = torch.empty(count)
        link.start_reduce_scatter(inputs[me], out, "sum").wait()
        assert torch.equal(out, reduce_tensors([x.view(n, count)[me] for x in inputs], "sum"))


@on_ranks(2)
def test_exchanges_carry_what_gloo_does_not_reduce(world: World) -> None:
    link = make_link(world)
    for dtype in (torch.int16, torch.bool, torch.complex64):
        x, wide, out = (torch.ones(count, dtype=dtype) for count in (4, 8, 2))
        link.start_all_gather((x * world.rank).to(dtype), wide).wait()
        assert wide.tolist() == [0] * 4 + [1] * 4
        link.start_reduce_scatter(x, out, "sum").wait()
        assert torch.equal(out, x[:2] + x[2:])


def count_calls(world: World) -> list[tuple[str, int]]:
    axis = world.axis("tensor", range(world.size), link="fast-gloo")
    with Ledger() as ledger:
        axis.all_reduce(torch.ones(4))
        axis.all_gather(torch.ones(4))
        axis.reduce_scatter(torch.ones(4))
        axis.all_gather(torch.ones(LARGE))
    return [(entry.op, entry.payload) for entry in ledger.entries]


def test_the_ledger_counts_each_collective_once_and_no_exchange(pool: Any) -> None:
    expected = [("all_reduce", 16), ("all_gather", 64), ("reduce_scatter", 16)]
    assert pool(4).run(count_calls) == [[*expected, ("all_gather", 16 * LARGE)]] * 4


def test_another_backend_than_gloo_is_refused() -> None:
    with alone(0, 2) as world, pytest.raises(ValueError, match="this world is over fake"):
        world.axis("tensor", range(2), link="fast-gloo")
