"""A model on meta: each rank draws its shards, of the same weights, and never holds the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.init import keyed_normal, seed_from
from shardlab.layers.sharding import sharding_of

CONFIG = GPTConfig(layers=2, hidden=16, heads=4, vocab=37, sequence=6)


def sharded(world: World, tensor: int, device: Any, config: GPTConfig = CONFIG) -> FSDP:
    grid = Grid(world=world, tensor=tensor)
    model = GPT(config, tensor=grid.tensor, seed=3, device=device)
    half = MixedPrecision(torch.bfloat16, torch.float32)
    return FSDP(
        model, grid.data, units=model.layers.values(), mixed_precision=half, device=world.device
    )


def differing(world: World, tensor: int, tied: bool) -> list[str]:
    """What a model made on meta has otherwise than one made on the device."""
    config = replace(CONFIG, tie_embeddings=tied)
    ours, right = (sharded(world, tensor, device, config) for device in ("meta", world.device))
    words = torch.arange(12, device=world.device).view(2, 6)
    wrong = []
    for model in (ours, right):
        model.module.loss(model(words), words).backward()  # type: ignore[operator, arg-type]
    for flat, its in zip(ours.flats, right.flats, strict=True):
        assert flat.layout == its.layout
        same = torch.equal(flat.shard_f, its.shard_f) and flat.shard_f.device == its.shard_f.device
        assert flat.shard_f.grad is not None and its.shard_f.grad is not None
        same &= torch.equal(flat.shard_f.grad, its.shard_f.grad)
        same &= [*map(sharding_of, flat.leaves)] == [*map(sharding_of, its.leaves)]
        wrong += [] if same else [flat.name]
    return wrong


@pytest.mark.parametrize(
    ("ranks", "tensor"), [(1, 1), (2, 1), pytest.param(4, 2, marks=pytest.mark.ci)]
)
def test_shards_drawn_from_meta_are_those_of_the_model_drawn_whole(
    pool: Any, ranks: int, tensor: int
) -> None:
    for tied in (True, False):
        assert pool(ranks).run(differing, tensor, tied) == [[]] * ranks


WIDE = replace(CONFIG, layers=4, hidden=128, vocab=400)


def peak(world: World, device: str) -> tuple[int, int, int]:
    """The most bytes at once while the model is made; its own, and those of its largest unit."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        model = sharded(world, 1, device, WIDE)
    results = record.profiler.kineto_results  # type: ignore[union-attr]
    events = [event for event in results.events() if event.name() == "[memory]"]
    allocated = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        allocated += event.nbytes()
        highest = max(highest, allocated)
    units = [sum(4 * flat.layout.numel for flat in unit.flats) for unit in model.units]
    return highest, sum(units), max(units)


def test_no_rank_ever_holds_the_whole_of_a_model_on_meta(pool: Any) -> None:
    for highest, whole, unit in pool(2).run(peak, "meta"):
        assert highest < whole / 2 + unit + 2 * 8 * 2**16  # its half, a unit's room, a block drawn
        assert highest < 0.85 * whole
    for highest, whole, _ in pool(2).run(peak, "cpu"):
        assert highest > whole, "what is measured tells the two apart"


def test_a_model_on_meta_is_refused_without_a_device_and_without_values() -> None:
    alone = Axis.alone()
    with pytest.raises(ValueError, match=r"say where its shards are to be, FSDP\(…, device=…\)"):
        FSDP(GPT(CONFIG, tensor=alone, device="meta"), alone)
    here = torch.device("cpu")
    with pytest.raises(ValueError, match=r"shape \(3, 2\) is on meta and can't be drawn: make it"):
        FSDP(torch.nn.Linear(2, 3, device="meta"), alone, device=here)
    with pytest.raises(ValueError, match="the buffers running_mean, running_var"):
        FSDP(torch.nn.BatchNorm1d(3, device="meta"), alone, device=here)
    half = torch.nn.Linear(2, 3)
    half.bias = torch.nn.Parameter(torch.empty(3, device="meta"))
    with pytest.raises(ValueError, match="share one device: some are on cpu, others on meta"):
        FSDP(half, alone, device=here)


@pytest.mark.parametrize("shape", [(1, 7), (17, 5), (100, 33), (9, 30_000), (40, 2051)])
def test_any_box_is_that_of_the_whole_draw_and_that_is_torchs(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    whole = keyed_normal("w", shape, seed=1, std=2.0)
    seeded = torch.Generator().manual_seed(seed_from(1, "w"))
    torchs = torch.randn(*shape, generator=seeded, dtype=torch.float64)
    assert torch.equal(whole, torchs.mul_(2.0).float())
    bounds = torch.rand(20, 4, generator=generator) * torch.tensor([shape[0] + 1, shape[1] + 1] * 2)
    for top, left_column, bottom, right in bounds.long().tolist():
        rows = range(min(top, bottom), max(top, bottom))
        columns = range(min(left_column, right), max(left_column, right))
        box = keyed_normal("w", shape, seed=1, std=2.0, rows=rows, columns=columns)
        expected = whole[rows.start : rows.stop, columns.start : columns.stop]
        assert torch.equal(box.reshape(expected.shape), expected)
