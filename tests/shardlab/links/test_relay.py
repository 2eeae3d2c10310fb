"""Collectives by way of the first rank: what arithmetic says, whatever is under way beside them;
chosen on a crowded host alone; and counted once."""

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
from tests.shardlab.links.test_exchange import DTYPES, drawn, joined

PATIENCE = timedelta(seconds=LIMIT)


def values(world: World, dtypes: list[torch.dtype], counts: list[int]) -> None:
    group, n, me = dist.group.WORLD, world.size, world.rank
    for dtype, count in ((d, c) for d in dtypes for c in counts):
        theirs = [drawn(r, count, dtype) for r in range(n)]
        cut = [drawn(r, n * count, dtype) for r in range(n)]
        x = theirs[me].clone()
        for op in ["sum"] if dtype.is_complex else ["sum", "max"]:
            out = torch.empty_like(x)
            relay.start("all_reduce", group, x, out, op, patience=PATIENCE).wait()
            assert torch.equal(out, joined(theirs, op)), f"all_reduce {op} {dtype} {count}"
            mine = cut[me].clone()
            relay.start("reduce_scatter", group, mine, out, op, patience=PATIENCE).wait()
            rows = [row.view(n, count)[me] for row in cut]
            assert torch.equal(out, joined(rows, op)), f"reduce_scatter {op} {dtype} {count}"
            assert torch.equal(mine, cut[me]), "the input was changed"
        wide = torch.empty(n * count, dtype=dtype)
        relay.start("all_gather", group, x, wide, "sum", patience=PATIENCE).wait()
        assert torch.equal(wide, torch.cat(theirs)), f"all_gather {dtype} {count}"
        assert torch.equal(x, theirs[me]), "the input was changed"
        relay.start("all_reduce", group, x, x, "sum", patience=PATIENCE).wait()
        assert torch.equal(x, joined(theirs, "sum")), f"in place {dtype} {count}"


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_relay_gives_what_arithmetic_says(pool: Any, size: int) -> None:
    pool(size).run(values, [torch.float32], [0, 1, 5, 70_001])


def test_a_relay_carries_every_dtype(pool: Any) -> None:
    pool(4).run(values, list(DTYPES), [3])


def sums(world: World) -> list[Tensor]:
    results = []
    for count in (7, 5_000):
        theirs = [torch.randn(count, generator=torch.Generator().manual_seed(r)) for r in range(4)]
        out = torch.empty(count)
        mine, group = theirs[world.rank], dist.group.WORLD
        relay.start("all_reduce", group, mine, out, "sum", patience=PATIENCE).wait()
        assert torch.equal(out, joined(theirs, "sum"))
        results.append(out)
    return results


def test_a_sum_is_added_in_rank_order_and_has_the_same_bits_on_every_rank(pool: Any) -> None:
    first, *others = pool(4).run(sums)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def several(world: World) -> None:
    """Two relays, an exchange and a message of the axis's own, all under way at once."""
    group, n, me = dist.group.WORLD, world.size, world.rank
    xs = [torch.full((4 * n,), float(i + me)) for i in range(3)]
    outs = [torch.empty(4 * n), torch.empty(4), torch.empty(4 * n)]
    beside, came = torch.full((4,), float(me)), torch.empty(4)
    axis = world.whole
    exchanged = axis.start_exchange([(beside, (me + 1) % n)], [(came, (me - 1) % n)])
    works = [
        relay.start("all_reduce", group, xs[0], outs[0], "sum", patience=PATIENCE),
        relay.start("reduce_scatter", group, xs[1], outs[1], "sum", patience=PATIENCE),
    ]
    reduced = axis.start("all_reduce", xs[2], op="max", out=outs[2])
    for work in [*works, *works, reduced, *exchanged]:  # a second wait changes nothing
        work.wait()
    ranks = sum(range(n))
    assert outs[0].unique().tolist() == [ranks]
    assert outs[1].unique().tolist() == [ranks + n]
    assert outs[2].unique().tolist() == [2 + n - 1]
    assert came.unique().tolist() == [(me - 1) % n]


def test_relays_exchanges_and_messages_of_one_group_dont_meet(pool: Any) -> None:
    pool(4).run(several)


def overlapping(world: World, check: bool) -> tuple[float, float]:
    """Two relays on a crowded host; the second is waited for first, or checked in between."""
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
    assert pool(4).run(overlapping, check) == [(6.0, 60.0)] * 4


# ---------------------------------------------------------------------- when one is used


def started(world: World, cores: int, waits_immediately: bool) -> list[str]:
    """How an axis's collectives of a small and of a large tensor went, on so many cores."""
    ways: list[str] = []
    kinds = ("all_reduce", "all_gather", "reduce_scatter")

    def noted(self: FastGlooLink, kind: str, x: Tensor, waits_immediately: bool) -> str:
        ways.append(real(self, kind, x, waits_immediately))
        return ways[-1]

    real = FastGlooLink.way
    with patch.object(os, "cpu_count", lambda: cores), patch.object(FastGlooLink, "way", noted):
        axis = World(link="fast-gloo").axis("tensor", range(world.size))
        for x in (torch.ones(1024), torch.ones(2 << 20)):
            for kind in kinds:
                axis.start(kind, x, waits_immediately=waits_immediately).wait()
    return ways


def test_a_crowded_host_relays_what_is_small_and_waited_for_at_once(pool: Any) -> None:
    for ways in pool(4).run(started, 2, True):
        assert ways == ["relay", "relay", "relay", "", "exchange", "exchange"]


@pytest.mark.parametrize(("cores", "waits_immediately"), [(4, True), (2, False)])
def test_with_a_core_for_each_rank_or_other_work_before_the_wait_none_is_used(
    pool: Any, cores: int, waits_immediately: bool
) -> None:
    for ways in pool(4).run(started, cores, waits_immediately):
        assert ways == ["exchange", "exchange", "exchange", "", "exchange", "exchange"]


def test_two_ranks_and_numbers_that_were_not_measured() -> None:
    x = torch.ones(256)
    assert [relay.suits("all_reduce", x, size) for size in (2, 3, 4, 5, 8, 9)] == [
        False, True, True, True, True, False,
    ]  # fmt: skip


def blocking(world: World) -> list[str]:
    """The ways of the blocking calls; of each, x is small."""
    ways: list[str] = []
    real = FastGlooLink.way

    def noted(self: FastGlooLink, kind: str, x: Tensor, waits_immediately: bool) -> str:
        ways.append(real(self, kind, x, waits_immediately))
        return ways[-1]

    with patch.object(os, "cpu_count", lambda: 2), patch.object(FastGlooLink, "way", noted):
        axis = World(link="fast-gloo").axis("tensor", range(world.size))
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            getattr(axis, kind)(torch.ones(8))
    return ways


def test_blocking_collectives_are_waited_for_at_once(pool: Any) -> None:
    assert pool(4).run(blocking) == [["relay"] * 3] * 4


def counted(world: World) -> list[tuple[str, int]]:
    with patch.object(os, "cpu_count", lambda: 1):
        axis = World(link="fast-gloo").axis("tensor", range(world.size))
    with Ledger() as ledger:
        axis.all_reduce(torch.ones(4))
        axis.all_gather(torch.ones(4))
        axis.reduce_scatter(torch.ones(4))
    return [(entry.op, entry.payload) for entry in ledger.entries]


def test_the_ledger_counts_what_was_asked_and_none_of_the_messages(pool: Any) -> None:
    asked = [("all_reduce", 16), ("all_gather", 64), ("reduce_scatter", 16)]
    assert pool(4).run(counted) == [asked] * 4
