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

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
LARGE = COPIED_BYTES // 4 + 1  # elements of fp32 that are not copied for each rank


def make_link(world: World) -> FastGlooLink:
    return FastGlooLink(world, tuple(range(world.size)))


def draw(rank: int, count: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 8, (count,), generator=generator).to(dtype)


def reduce_tensors(tensors: list[Tensor], op: str) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = torch.maximum(total, tensor) if op == "max" else total + tensor
    return total


def check_values(world: World, dtypes: list[torch.dtype], counts: list[int]) -> None:
    link, n, me = make_link(world), world.size, world.rank
    for dtype, count in ((dtype, count) for dtype in dtypes for count in counts):
        inputs = [draw(rank, count, dtype) for rank in range(n)]
        x = inputs[me].clone()
        wide = torch.empty(n * count, dtype=dtype)
        link.start_all_gather(x, wide).wait()
        assert torch.equal(wide, torch.cat(inputs)), f"all_gather {dtype} {count}"
        assert torch.equal(x, inputs[me]), "the input was changed"

        matrices = [draw(rank, n * count, dtype) for rank in range(n)]
        rows = [matrix.view(n, count)[me] for matrix in matrices]
        for op in ["sum"] if dtype.is_complex else ["sum", "max"]:
            matrix, out = matrices[me].clone(), torch.empty(count, dtype=dtype)
            link.start_reduce_scatter(matrix, out, op).wait()
            expected = reduce_tensors(rows, op)
            assert torch.equal(out, expected), f"reduce_scatter {op} {dtype} {count}"
            assert torch.equal(matrix, matrices[me]), "the input was changed"


@pytest.mark.parametrize("size", [2, 4, 8])
def test_exchanges_give_the_right_values_for_small_and_large_tensors(pool: Any, size: int) -> None:
    pool(size).run(check_values, [torch.float32], [0, 1, 5, LARGE, 70_001])


@pytest.mark.parametrize("size", [2, 4])
def test_exchanges_carry_every_dtype(pool: Any, size: int) -> None:
    pool(size).run(check_values, list(DTYPES), [3])


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


@pytest.mark.parametrize("size", [2, 4])
@on_ranks("size")
def test_collectives_and_messages_may_be_waited_for_in_any_order(world: World) -> None:
    axis, n, me = world.axis("several", range(world.size), link="fast-gloo"), world.size, world.rank
    xs = [torch.full((4 * n,), float(i + me)) for i in range(4)]
    outs = [torch.empty(4 * n), torch.empty(4), torch.empty(4 * n * n), torch.empty(4 * n)]
    message, received = torch.full((4,), float(me)), torch.empty(4)
    works = [
        axis.start("all_reduce", xs[0], out=outs[0]),
        *axis.start_exchange([(message, (me + 1) % n)], [(received, (me - 1) % n)]),
        axis.start("reduce_scatter", xs[1], out=outs[1]),
        axis.start("all_gather", xs[2], out=outs[2]),
        axis.start("all_reduce", xs[3], out=outs[3], op="max"),
    ]
    for work in works[:: 1 if me else -1]:  # the waits' order differs between ranks
        work.wait()
        work.wait()
    ranks = sum(range(n))
    assert outs[0].unique().tolist() == [ranks]
    assert outs[1].unique().tolist() == [ranks + n]
    assert outs[2].view(n, -1)[:, 0].tolist() == [2.0 + r for r in range(n)]
    assert outs[3].unique().tolist() == [3 + n - 1]
    assert received.unique().tolist() == [(me - 1) % n]


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
