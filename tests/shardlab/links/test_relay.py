"""Collectives that the first rank relays give the right values, whatever else is under way; they
are used on an oversubscribed host only, and counted once."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardlab.comm import World
from shardlab.links.fast_gloo import FastGlooLink, relay
from shardlab.proofs.ledger import Ledger
from tests.limits import LIMIT
from tests.shardlab.links.test_exchange import DTYPES, draw, reduce_tensors

TIMEOUT = timedelta(seconds=LIMIT)


def check_values(world: World, dtypes: list[torch.dtype], counts: list[int]) -> None:
    group, n, me = dist.group.WORLD, world.size, world.rank
    for dtype, count in ((d, c) for d in dtypes for c in counts):
        inputs = [draw(r, count, dtype) for r in range(n)]
        matrices = [draw(r, n * count, dtype) for r in range(n)]
        x = inputs[me].clone()
        for op in ["sum"] if dtype.is_complex else ["sum", "max"]:
            out = torch.empty_like(x)
            relay.start("all_reduce", group, x, out, op, timeout=TIMEOUT).wait()
            assert torch.equal(out, reduce_tensors(inputs, op)), f"all_reduce {op} {dtype} {count}"
            matrix = matrices[me].clone()
            relay.start("reduce_scatter", group, matrix, out, op, timeout=TIMEOUT).wait()
            rows = [row.view(n, count)[me] for row in matrices]
            assert torch.equal(out, reduce_tensors(rows, op)), (
                f"reduce_scatter {op} {dtype} {count}"
            )
            assert torch.equal(matrix, matrices[me]), "the input was changed"
        wide = torch.empty(n * count, dtype=dtype)
        relay.start("all_gather", group, x, wide, "sum", timeout=TIMEOUT).wait()
        assert torch.equal(wide, torch.cat(inputs)), f"all_gather {dtype} {count}"
        assert torch.equal(x, inputs[me]), "the input was changed"
        relay.start("all_reduce", group, x, x, "sum", timeout=TIMEOUT).wait()
        assert torch.equal(x, reduce_tensors(inputs, "sum")), f"in place {dtype} {count}"


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_relay_gives_the_right_values(pool: Any, size: int) -> None:
    pool(size).run(check_values, [torch.float32], [0, 1, 5, 70_001])


def test_a_relay_carries_every_dtype(pool: Any) -> None:
    pool(4).run(check_values, list(DTYPES), [3])


def sum_tensors(world: World) -> list[Tensor]:
    results = []
    for count in (7, 5_000):
        inputs = [torch.randn(count, generator=torch.Generator().manual_seed(r)) for r in range(4)]
        out = torch.empty(count)
        x, group = inputs[world.rank], dist.group.WORLD
        relay.start("all_reduce", group, x, out, "sum", timeout=TIMEOUT).wait()
        assert torch.equal(out, reduce_tensors(inputs, "sum"))
        results.append(out)
    return results


def test_a_sum_is_added_in_rank_order_and_has_the_same_bits_on_every_rank(pool: Any) -> None:
    first, *rest = pool(4).run(sum_tensors)
    for results in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, results, strict=True))


def start_several(world: World) -> None:
    """Two relays, an exchange and a message of the axis's own, all under way at once."""
    group, n, me = dist.group.WORLD, world.size, world.rank
    xs = [torch.full((4 * n,), float(i + me)) for i in range(3)]
    outs = [torch.empty(4 * n), torch.empty(4), torch.empty(4 * n)]
    message, received = torch.full((4,), float(me)), torch.empty(4)
    axis = world.whole
    exchanged = axis.start_exchange([(message, (me + 1) % n)], [(received, (me - 1) % n)])
    works = [
        relay.start("all_reduce", group, xs[0], outs[0], "sum", timeout=TIMEOUT),
        relay.start("reduce_scatter", group, xs[1], outs[1], "sum", timeout=TIMEOUT),
    ]
    reduced = axis.start("all_reduce", xs[2], op="max", out=outs[2])
    for work in [*works, *works, reduced, *exchanged]:  # a second wait changes nothing
        work.wait()
    ranks = sum(range(n))
    assert outs[0].unique().tolist() == [ranks]
    assert outs[1].unique().tolist() == [ranks + n]
    assert outs[2].unique().tolist() == [2 + n - 1]
    assert received.unique().tolist() == [(me - 1) % n]


def test_relays_exchanges_and_messages_of_one_group_dont_meet(pool: Any) -> None:
    pool(4).run(start_several)


def overlap_two(world: World, check: bool) -> tuple[float, float]:
    """Two relays on an oversubscribed host; the second has its wait first, or a check between."""
    with patch.object(os, "cpu_count", lambda: 2):
        axis = World(check=check, link="fast-gloo").axis("tensor", range(world.size))
    x = torch.arange(8.0) + world.rank
    first = axis.start("all_reduce", x, waits_immediately=True)
    second = axis.start("all_reduce", 10 * x, waits_immediately=True)
    for pending in (first, second) if check else (second, first):
        pending.wait()
    return float(first.wait()[0]), float(second.wait()[0])


@pytest.mark.parametrize("check", [False, True])
def test_relays_that_are_waited_for_in_another_order_keep_apart(pool: Any, check: bool) -> None:
    assert pool(4).run(overlap_two, check) == [(6.0, 60.0)] * 4


# ---------------------------------------------------------------------- when one is used


def list_algorithms(world: World, cores: int, waits_immediately: bool) -> list[str]:
    """How an axis's collectives of a small and of a large tensor went, on so many cores."""
    algorithms: list[str] = []
    kinds = ("all_reduce", "all_gather", "reduce_scatter")

    def record_algorithm(self: FastGlooLink, kind: str, x: Tensor, waits_immediately: bool) -> str:
        algorithms.append(real(self, kind, x, waits_immediately))
        return algorithms[-1]

    real = FastGlooLink.algorithm_for
    with (
        patch.object(os, "cpu_count", lambda: cores),
        patch.object(FastGlooLink, "algorithm_for", record_algorithm),
    ):
        axis = World(link="fast-gloo").axis("tensor", range(world.size))
        for x in (torch.ones(1024), torch.ones(2 << 20)):
            for kind in kinds:
                axis.start(kind, x, waits_immediately=waits_immediately).wait()
    return algorithms


def test_an_oversubscribed_host_relays_small_tensors_with_an_immediate_wait(pool: Any) -> None:
    for algorithms in pool(4).run(list_algorithms, 2, True):
        assert algorithms == ["relay", "relay", "relay", "", "exchange", "exchange"]


@pytest.mark.parametrize(("cores", "waits_immediately"), [(4, True), (2, False)])
def test_with_a_core_for_each_rank_or_other_work_before_the_wait_none_is_used(
    pool: Any, cores: int, waits_immediately: bool
) -> None:
    for algorithms in pool(4).run(list_algorithms, cores, waits_immediately):
        assert algorithms == ["exchange", "exchange", "exchange", "", "exchange", "exchange"]


def test_two_ranks_and_numbers_that_were_not_measured() -> None:
    x = torch.ones(256)
    assert [relay.is_faster("all_reduce", x, size) for size in (2, 3, 4, 5, 8, 9)] == [
        False, True, True, True, True, False,
    ]  # fmt: skip


def list_blocking_algorithms(world: World) -> list[str]:
    """The ways of the blocking calls; of each, x is small."""
    algorithms: list[str] = []
    real = FastGlooLink.algorithm_for

    def record_algorithm(self: FastGlooLink, kind: str, x: Tensor, waits_immediately: bool) -> str:
        algorithms.append(real(self, kind, x, waits_immediately))
        return algorithms[-1]

    with (
        patch.object(os, "cpu_count", lambda: 2),
        patch.object(FastGlooLink, "algorithm_for", record_algorithm),
    ):
        axis = World(link="fast-gloo").axis("tensor", range(world.size))
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            getattr(axis, kind)(torch.ones(8))
    return algorithms


def test_blocking_collectives_are_waited_for_at_once(pool: Any) -> None:
    assert pool(4).run(list_blocking_algorithms) == [["relay"] * 3] * 4


def count_calls(world: World) -> list[tuple[str, int]]:
    with patch.object(os, "cpu_count", lambda: 1):
        axis = World(link="fast-gloo").axis("tensor", range(world.size))
    with Ledger() as ledger:
        axis.all_reduce(torch.ones(4))
        axis.all_gather(torch.ones(4))
        axis.reduce_scatter(torch.ones(4))
    return [(entry.op, entry.payload) for entry in ledger.entries]


def test_the_ledger_counts_the_collectives_and_none_of_their_messages(pool: Any) -> None:
    expected = [("all_reduce", 16), ("all_gather", 64), ("reduce_scatter", 16)]
    assert pool(4).run(count_calls) == [expected] * 4
