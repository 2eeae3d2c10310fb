"""Our collectives over gloo, against plain arithmetic; and, as a benchmark, against gloo's own."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardlab.comm import World
from shardlab.links.fast_gloo import exchange
from shardlab.links.fast_gloo.exchange import CHOICES, choose_algorithm

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
ALGORITHMS = {"all_reduce": ["single"], "all_gather": ["single", "by-peer"]}
ALGORITHMS["reduce_scatter"] = ALGORITHMS["all_gather"]


def draw(rank: int, count: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 8, (count,), generator=generator).to(dtype)


def reduce_tensors(tensors: list[Tensor], op: str) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = torch.maximum(total, tensor) if op == "max" else total + tensor
    return total


def check_values(world: World, dtype: torch.dtype, counts: list[int]) -> None:
    group, n, me = dist.group.WORLD, world.size, world.rank
    ops = ["sum"] if dtype.is_complex else ["sum", "max"]
    for count in counts:
        inputs = [draw(r, count, dtype) for r in range(n)]
        matrices = [draw(r, n * count, dtype) for r in range(n)]
        x = inputs[me].clone()
        for op in ops:
            out = torch.empty_like(x)
            exchange.start_all_reduce(group, x, out, op).wait()
            assert torch.equal(out, reduce_tensors(inputs, op)), f"all_reduce {op} {dtype} {count}"
            rows = [row.view(n, count)[me] for row in matrices]
            exchange.start_reduce_scatter(group, matrices[me].clone(), out, op).wait()
            assert torch.equal(out, reduce_tensors(rows, op)), (
                f"reduce_scatter {op} {dtype} {count}"
            )
        wide = torch.empty(n * count, dtype=dtype)
        exchange.start_all_gather(group, x, wide).wait()
        assert torch.equal(wide, torch.cat(inputs)), f"all_gather {dtype} {count}"
        assert torch.equal(x, inputs[me]), "the input was changed"
        exchange.start_all_reduce(group, x, x, "sum").wait()
        assert torch.equal(x, reduce_tensors(inputs, "sum")), f"in place {dtype} {count}"


def check_each_algorithm(world: World, dtypes: list[torch.dtype], counts: list[int]) -> None:
    saved = {name: dict(table) for name, table in CHOICES.items()}
    for number in range(2):
        for name, algorithms in ALGORITHMS.items():
            CHOICES[name][world.size] = [(float("inf"), algorithms[number % len(algorithms)])]
        try:
            for dtype in dtypes:
                check_values(world, dtype, counts)
        finally:
            CHOICES.update({name: dict(table) for name, table in saved.items()})


@pytest.mark.parametrize("size", [2, 4, 8])
def test_each_algorithm_gives_the_right_values(pool, size: int) -> None:
    pool(size).run(check_each_algorithm, [torch.float32], [0, 1, 5, 70_001])


@pytest.mark.parametrize("size", [2, 4])
def test_each_algorithm_carries_every_dtype(pool, size: int) -> None:
    pool(size).run(check_each_algorithm, list(DTYPES), [3])


def sum_tensors(world: World) -> list[Tensor]:
    group, results = dist.group.WORLD, []
    for count in (7, 5_000):
        inputs = [torch.randn(count, generator=torch.Generator().manual_seed(r)) for r in range(4)]
        out = torch.empty(count)
        exchange.start_all_reduce(group, inputs[world.rank], out, "sum").wait()
        assert torch.equal(out, reduce_tensors(inputs, "sum"))
        results.append(out)
    return results


def test_a_sum_is_added_in_rank_order_and_has_the_same_bits_on_every_rank(pool) -> None:
    first, *rest = pool(4).run(sum_tensors)
    for results in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, results, strict=True))


def start_several(world: World) -> None:
    group, n = dist.group.WORLD, world.size
    xs = [torch.full((4 * n,), float(i + world.rank)) for i in range(4)]
    outs = [torch.empty(4 * n), torch.empty(4), torch.empty(4 * n * n), torch.empty(4 * n)]
    works = [
        exchange.start_all_reduce(group, xs[0], outs[0], "sum"),
        exchange.start_reduce_scatter(group, xs[1], outs[1], "sum"),
        exchange.start_all_gather(group, xs[2], outs[2]),
        exchange.start_all_reduce(group, xs[3], outs[3], "max"),
    ]
    for work in works[:: 1 if world.rank else -1]:  # the waits' order differs between ranks
        work.wait()
        work.wait()
    ranks = sum(range(n))
    assert outs[0].unique().tolist() == [ranks]
    assert outs[1].unique().tolist() == [ranks + n]
    assert outs[2].view(n, -1)[:, 0].tolist() == [2.0 + r for r in range(n)]
    assert outs[3].unique().tolist() == [3 + n - 1]


@pytest.mark.parametrize("size", [2, 4])
def test_exchanges_started_together_may_be_waited_for_in_any_order(pool, size: int) -> None:
    pool(size).run(start_several)


def test_a_number_of_ranks_that_was_not_measured_goes_by_the_next_larger_one() -> None:
    assert (
        choose_algorithm("all_reduce", 3, 1024)
        == choose_algorithm("all_reduce", 4, 1024)
        == "single"
    )
    assert choose_algorithm("all_reduce", 16, 1024) == ""
    assert choose_algorithm("all_reduce", 2, 1 << 30) == ""
