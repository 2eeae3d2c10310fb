"""A model that shardlab doesn't know is saved and gathered like shardlab's GPT.

The Llama of own_llama.py has uneven stages and no config. Its checkpoint goes on on another grid
and in FSDP. That its steps equal one process's is proved by parity/test_parity.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from pages.ranks import alone
from shardlab.comm import World
from shardlab.fsdp import FSDP
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole_parameters
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError
from shardlab.training.step import StepGradients
from tests.shardlab.own_llama import HIDDEN, Llama

CONFIG = {"name": "own llama", "layers": 3}


def setting(world: World, axes: dict[str, int], fsdp: bool, seed: int) -> tuple[Any, Grid, Any]:
    grid = Grid(world=world, **axes)
    model: Any = Llama(grid, grid.pipeline.rank, grid.pipeline.size, tied=True)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            generator = torch.Generator().manual_seed(seed + len(name))
            whole = torch.rand(100, generator=generator, dtype=torch.float64)
            parameter.mul_(seed + whole[0])
    if fsdp:
        model = FSDP(model, grid.replicas, units=model.layers.values())
    return model, grid, SGD(model.parameters(), lr=0.1, momentum=0.9)


def save(world: World, axes: dict[str, int], fsdp: bool, folder: str) -> dict[str, Tensor]:
    model, grid, optimizer = setting(world, axes, fsdp, 1)
    checkpoint.save(folder, model=model, grid=grid, optimizer=optimizer, config=CONFIG)
    return model.whole_parameters() if fsdp else whole_parameters(model)


def load(world: World, axes: dict[str, int], fsdp: bool, folder: str) -> dict[str, Tensor]:
    model, grid, optimizer = setting(world, axes, fsdp, 2)
    checkpoint.load(folder, model=model, grid=grid, optimizer=optimizer, config=CONFIG)
    return model.whole_parameters() if fsdp else whole_parameters(model)


def test_a_checkpoint_of_ones_own_model_goes_on_on_another_grid_and_in_fsdp(
    pool: Any, tmp_path: Path
) -> None:
    saved: dict[str, Tensor] = {}
    for rank in pool(4).run(save, {"tensor": 2, "pipeline": 2}, False, str(tmp_path)):
        saved |= rank
    assert len(saved) == 3 * 9 + 2
    for axes, fsdp in [({"data": 2}, True), ({"pipeline": 2}, False), ({"tensor": 2}, False)]:
        loaded: dict[str, Tensor] = {}
        for rank in pool(2).run(load, axes, fsdp, str(tmp_path)):
            loaded |= rank
        assert loaded.keys() == saved.keys()
        assert all(torch.equal(loaded[name], saved[name]) for name in saved)


def test_what_a_model_lacks_is_said_with_the_fix(tmp_path: Path) -> None:
    with alone(0, 1) as world:
        grid = Grid(world=world)
        model = Llama(grid)
        checkpoint.save(tmp_path, model=model, grid=grid, config=CONFIG)
        words = "of another model: layers = 3 .here 4."
        with pytest.raises(CheckpointError, match=words):
            checkpoint.load(tmp_path, model=model, grid=grid, config=CONFIG | {"layers": 4})
        model.config = object()
        with pytest.raises(CheckpointError, match="give its settings as a dict, config="):
            checkpoint.save(tmp_path, model=model, grid=grid)
        with pytest.raises(CheckpointError, match="object is no number, string"):
            checkpoint.save(tmp_path, model=model, grid=grid, config={"a": object()})
        model.register_buffer("mean", torch.zeros(1))
        with pytest.raises(CheckpointError, match=r"the buffer mean.*persistent=False"):
            checkpoint.save(tmp_path, model=model, grid=grid, config=CONFIG)
        assert checkpoint.load(tmp_path, model=Llama(grid), grid=grid, config=CONFIG) == {}
        tied = nn.Linear(2, 2)
        tied.tied_weight = tied.weight  # type: ignore[assignment]
        with pytest.raises(ValueError, match=r"which stage counts it: set model\.first"):
            StepGradients(tied, grid)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda x: {"hidden": x}, "stage 0 returns a dict: every stage but the last must return a"),
        (
            lambda x: (x, x),
            "is torch.float64 of shape .* and torch.float64 .*; between stages goes",
        ),
    ],
)
def test_a_stage_that_returns_something_else_is_told_what_to_return(
    returned: Any, words: str
) -> None:
    stage = nn.Identity()
    stage.forward = returned  # type: ignore[method-assign]
    x = torch.zeros(2, HIDDEN, dtype=torch.float64)
    with alone(0, 2) as world, pytest.raises(ValueError, match=words):
        run(
            by_name("1f1b", 2, 1), stage, [(x, x)], lambda y, _: y.sum(), axis=world.whole,
            shape=x.shape, dtype=torch.float64,
        )  # fmt: skip
