"""A checkpoint of experts on one grid goes on, bit for bit, on any other: it names no rank."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import AdamW

from shardlab.comm import World
from shardlab.experts.config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError
from tests.shardlab.training.test_checkpoint import fake_gradient

CONFIG = GPTConfig(
    layers=2, hidden=8, heads=4, ffn=8, vocab=10, sequence=4, bias=False,
    experts=ExpertConfig(count=4, ffn=8, scores="sigmoid", bias_rate=0.1, shared=8),
)  # fmt: skip
Sizes = dict[str, int]


def setting(world: World, sizes: Sizes, seed: int = 0) -> tuple[GPT, AdamW, Grid]:
    grid = Grid(world=world, **sizes)  # type: ignore[arg-type]
    model = GPT(
        CONFIG, tensor=grid.tensor, sequence_parallel=True, seed=seed, stage=grid.pipeline.rank,
        stages=grid.pipeline.size, experts=ExpertAxes.of(grid),
    )  # fmt: skip
    return model, AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01), grid


def step(model: GPT, optimizer: AdamW, number: int) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.grad = fake_gradient(name, parameter, number)
        else:  # the bias of the choice, which no optimizer moves
            parameter.data += fake_gradient(name, parameter, number)
    optimizer.step()


def everything(model: GPT, optimizer: AdamW) -> dict[str, Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = whole(parameter).clone()
        for key, value in optimizer.state.get(parameter, {}).items():
            found[f"{name}/{key}"] = (whole(parameter, value) if value.dim() else value).clone()
    return found


def saved(world: World, folder: str, sizes: Sizes) -> dict[str, Tensor]:
    model, optimizer, grid = setting(world, sizes)
    step(model, optimizer, 0)
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    step(model, optimizer, 1)
    return everything(model, optimizer)


def resumed(world: World, folder: str, sizes: Sizes) -> dict[str, Tensor]:
    model, optimizer, grid = setting(world, sizes, seed=1)
    checkpoint.load(folder, model=model, optimizer=optimizer, grid=grid)
    step(model, optimizer, 1)
    return everything(model, optimizer)


MOVES: list[tuple[int, Sizes]] = [
    (4, {"tensor": 2, "expert": 4, "expert_tensor": 1}),
    (1, {}),
    (4, {"pipeline": 2, "expert": 2}),
    (4, {"expert": 2, "expert_tensor": 2}),
    (2, {"tensor": 2, "expert_tensor": 1}),
    (4, {"tensor": 2, "expert": 2, "expert_tensor": 1}),
    (1, {}),
]


def test_experts_go_on_from_any_other_grid_bit_for_bit(pool: Any, tmp_path: Path) -> None:
    for number, ((ranks, sizes), (others, their_sizes)) in enumerate(pairwise(MOVES)):
        folder = str(tmp_path / str(number))
        before = pool(ranks).run(saved, folder, sizes)
        after = pool(others).run(resumed, folder, their_sizes)
        right = {name: value for found in before for name, value in found.items()}
        for found in after:
            for name, value in found.items():
                assert torch.equal(value, right[name]), (sizes, their_sizes, name)
        assert {name for found in after for name in found} == right.keys()


def of_more_experts(world: World, folder: str) -> None:
    model, optimizer, grid = setting(world, {"expert": 2})
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    fewer = ExpertConfig(count=2, ffn=8)
    other = GPT(
        GPTConfig(layers=2, hidden=8, heads=4, ffn=8, vocab=10, sequence=4, experts=fewer),
        tensor=grid.tensor, experts=ExpertAxes.of(grid),
    )  # fmt: skip
    with pytest.raises(CheckpointError, match="of another model: bias = False"):
        checkpoint.load(folder, model=other, grid=grid)


def test_a_checkpoint_of_other_experts_is_refused(pool: Any, tmp_path: Path) -> None:
    pool(2).run(of_more_experts, str(tmp_path))
