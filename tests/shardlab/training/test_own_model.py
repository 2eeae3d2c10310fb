"""A model that shardlab doesn't know trains, is saved and is gathered like shardlab's GPT.

The Llama of own_llama.py has uneven stages and no config. Its step equals one process's
in fp64, its checkpoint goes on on another grid and in FSDP, and documents travel over its pipeline.
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
from shardlab.layers.sharding import whole, whole_parameters
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError
from shardlab.training.step import StepGradients
from tests.shardlab.difference import difference
from tests.shardlab.own_llama import BATCH, HIDDEN, SEQUENCE, Llama, batch

CONFIG = {"name": "own llama", "layers": 3}
ENDS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])


def documents(packed: bool) -> tuple[Tensor, ...]:
    return (ENDS.expand(BATCH, -1).contiguous(),) if packed else ()


def step_of_one_process(tied: bool, packed: bool) -> tuple[Tensor, dict[str, Tensor]]:
    with alone(0, 1) as world:
        model = Llama(Grid(world=world), tied=tied)
        tokens, targets = batch(0)
        loss = model.loss(model(tokens, *documents(packed)), targets)
        loss.backward()
        return loss.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def step_on_ranks(
    world: World, right: Any, axes: dict[str, int], tied: bool, packed: bool, schedule: str,
    fsdp: bool,
) -> dict[str, float]:  # fmt: skip
    """One step on a grid; the largest relative difference of each gradient from one process's."""
    loss, gradients = right
    grid = Grid(world=world, **axes)
    stage, stages = grid.pipeline.rank, grid.pipeline.size
    model = Llama(grid, stage, stages, sequence_parallel=grid.tensor.size > 1, tied=tied)
    part: Any = FSDP(model, grid.replicas, units=model.layers.values()) if fsdp else model
    step = StepGradients(part, grid, microbatches=2)
    local = [x.chunk(grid.data.size)[grid.data.rank] for x in (*batch(0), *documents(packed))]
    if model.context:
        local[:2] = [model.context.shard(x) for x in local[:2]]
    tokens, targets, *packs = ([*x.chunk(2)] for x in local)
    rows = BATCH // grid.data.size // 2
    shape: Any = model.hidden_shape(rows, SEQUENCE)
    losses = run(
        by_name(schedule, stages, 2), part,
        [((x, *(p[i] for p in packs)) if packs else x, targets[i]) for i, x in enumerate(tokens)],
        model.loss, axis=grid.pipeline,
        shape=[shape, (rows, SEQUENCE)] if packed else shape,
        dtype=[torch.float64, torch.int64] if packed else None,
    )  # fmt: skip
    norm = step.finish()
    of_all = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()
    off = {"norm": abs(float(norm / of_all) - 1)}
    if losses:
        mean = grid.replicas.all_reduce(torch.stack(losses).mean()[None], op="mean")[0]
        off["loss"] = difference(mean, loss)
    if fsdp:
        whole_gradients = part.whole_parameters("grad")
    else:
        whole_gradients = {name: whole(p, p.grad) for name, p in model.named_parameters()}
    return off | {name: difference(g, gradients[name]) for name, g in whole_gradients.items()}


GRIDS: list[tuple[dict[str, int], bool, bool, str, bool]] = [
    ({"tensor": 2}, True, False, "1f1b", False),
    ({"pipeline": 2}, True, True, "1f1b", False),
    ({"pipeline": 2}, False, True, "gpipe", True),
    ({"pipeline": 2}, True, False, "zb-h1", False),
    ({"context": 2}, False, True, "1f1b", True),
    ({"tensor": 2, "pipeline": 2}, True, True, "1f1b", False),
    ({"tensor": 2, "context": 2}, True, True, "1f1b", False),
    ({"pipeline": 2, "data": 2}, False, True, "zb-h1", False),
    ({"tensor": 2, "data": 2}, True, False, "1f1b", True),
]


@pytest.mark.parametrize(
    "case", GRIDS, ids=lambda case: "-".join(f"{k}{v}" for k, v in case[0].items())
)
def test_a_model_of_ones_own_takes_the_step_of_one_process(pool: Any, case: Any) -> None:
    axes, tied, packed, *_ = case
    right = step_of_one_process(tied, packed)
    ranks = 1
    for size in axes.values():
        ranks *= size
    found = pool(ranks).run(step_on_ranks, right, *case)
    assert max(off for rank in found for off in rank.values()) < 1e-11, found
    assert {name for rank in found for name in rank} == {*right[1], "norm", "loss"}


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
