"""One checkpoint for any grid and FSDP: what one writes the other reads, to go on bit for bit.

Gradients depend on names and places alone, so that one step is the same step on every grid.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from shardlab.comm import World
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.fsdp.flat.parameter import FlatParameter
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError
from shardlab.training.checkpoint.slices import boxes_of_run
from tests.shardlab.fsdp_models import gathered, sliced
from tests.shardlab.properties import steady
from tests.shardlab.training.test_checkpoint import (
    CONFIG,
    RECORD,
    fake_gradient,
    fake_step,
    resumed,
    saved,
    setting,
)

S = ShardingStrategy


def sharded(world: World, tensor: int, strategy: S, seed: int) -> tuple[FSDP, Optimizer, Grid]:
    """FSDP over the data ranks; under HYBRID_SHARD over pairs of them."""
    grid = Grid(world=world, tensor=tensor)
    model = GPT(CONFIG, tensor=grid.tensor, seed=seed, device=world.device)
    axes = {"axis": grid.data}
    if strategy is S.HYBRID_SHARD:
        here = world.rank // 2 * 2
        axes = {
            "axis": world.axis("inner", [here, here + 1]),
            "replicate": world.axis("outer", [world.rank % 2, world.rank % 2 + 2]),
        }
    fsdp = FSDP(model, **axes, units=model.layers.values(), strategy=strategy)
    return fsdp, AdamW(fsdp.parameters(), lr=0.01, betas=(0.8, 0.95)), grid


def fake_sharded_step(model: FSDP, optimizer: Optimizer, step: int) -> None:
    """`fake_step` of the same gradients, each rank's shard of them."""
    for flat in model.flats:
        gradients = [fake_gradient(*named, step) for named in named_leaves(flat)]
        flat.shard_f.grad = sliced(flat, gradients)
    optimizer.step()


def named_leaves(flat: FlatParameter) -> list[tuple[str, nn.Parameter]]:
    return list(zip(flat.layout.names, flat.leaves, strict=True))


def everything_sharded(model: FSDP, optimizer: Optimizer) -> dict[str, Tensor]:
    """As `everything`: parameters and optimizer state, whole."""
    state = {}
    for flat in model.flats:
        tensors = {"": flat.shard_f, **optimizer.state[flat.shard_f]}
        for key, value in tensors.items():
            parts = gathered(flat, value) if value.dim() else {}
            for name, leaf in named_leaves(flat):
                tensor = whole(leaf, parts[name]) if parts else value
                state[f"{name}/{key}" if key else name] = tensor.cpu().clone()
    return state


def saved_sharded(world: World, folder: str, tensor: int, strategy: S) -> Any:
    model, optimizer, grid = sharded(world, tensor, strategy, seed=0)
    for step in range(3):
        fake_sharded_step(model, optimizer, step)
    optimizer.param_groups[0]["lr"] = 0.005
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid, record=RECORD)
    return everything_sharded(model, optimizer)


def resumed_sharded(world: World, folder: str, tensor: int, strategy: S) -> Any:
    model, optimizer, grid = sharded(world, tensor, strategy, seed=1)
    assert checkpoint.load(folder, model=model, optimizer=optimizer, grid=grid) == RECORD
    for step in range(3, 5):
        fake_sharded_step(model, optimizer, step)
    after = everything_sharded(model, optimizer)
    with model.gathered():  # what forward would use
        word = whole(model.module.word_embedding.weight).clone().cpu()
    assert torch.equal(word, after["word_embedding.weight"])
    return after


@pytest.mark.parametrize(
    ("ranks", "tensor", "strategy"),
    [
        (2, 1, S.FULL_SHARD),
        (4, 2, S.SHARD_GRAD_OP),
        pytest.param(4, 1, S.HYBRID_SHARD, marks=pytest.mark.ci),
        pytest.param(2, 1, S.NO_SHARD, marks=pytest.mark.ci),
        (1, 1, S.FULL_SHARD),
    ],
)
def test_a_grid_goes_on_from_fsdp_and_fsdp_from_a_grid_bit_for_bit(
    pool: Any, tmp_path: Path, ranks: int, tensor: int, strategy: S
) -> None:
    sharded_folder, back = str(tmp_path / "sharded"), str(tmp_path / "back")
    pool(ranks).run(saved_sharded, sharded_folder, tensor, strategy)
    straight: dict[str, Tensor] = {}
    for tensors, _ in pool(4).run(saved, back, (2, 2), CONFIG, "adamw", False):
        straight |= tensors
    for tensors, _ in pool(4).run(resumed, sharded_folder, (2, 2), CONFIG, "adamw", False):
        for name, actual in tensors.items():
            assert torch.equal(actual, straight[name]), name
    for tensors in pool(ranks).run(resumed_sharded, back, tensor, strategy):
        assert tensors.keys() == straight.keys()
        for name, actual in tensors.items():
            assert torch.equal(actual, straight[name]), name


@steady
@given(shape=st.lists(st.integers(1, 4), max_size=4), draw=st.data())
def test_a_run_of_elements_is_cut_into_boxes_that_hold_each_once_in_order(
    shape: list[int], draw: st.DataObject
) -> None:
    whole_X = torch.arange(math.prod(shape)).view(shape)
    begin = draw.draw(st.integers(0, whole_X.numel()))
    end = draw.draw(st.integers(begin, whole_X.numel()))
    elements: list[int] = []
    boxes = list(boxes_of_run(shape, begin, end - begin))
    for offset, size in boxes:
        where = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
        elements += whole_X[where].flatten().tolist()
    assert elements == list(range(begin, end))
    assert len(boxes) <= max(2 * len(shape) - 1, 1)


def alone_among_others(world: World, folder: str) -> str:
    """Parameters of one flat shard that have taken different numbers of steps."""
    model, optimizer, grid = setting(world, (1, 1))
    fake_step(model, optimizer, 0)
    optimizer.state[model.layers["1"].mlp.fc1.weight]["step"] += 1
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    fsdp, optimizer, grid = sharded(world, 1, S.FULL_SHARD, seed=1)
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(folder, model=fsdp, optimizer=optimizer, grid=grid)
    return str(error.value)


def test_numbers_that_one_flat_shard_cannot_have_are_refused(pool: Any, tmp_path: Path) -> None:
    assert "is 2.0 in the checkpoint, and 1.0 of another parameter" in "".join(
        pool(1).run(alone_among_others, str(tmp_path))
    )
