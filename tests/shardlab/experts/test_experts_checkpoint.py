"""A checkpoint of experts on one grid goes on, bit for bit, on any other: it names no rank."""

from __future__ import annotations

from dataclasses import replace
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
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole
from shardlab.training import checkpoint
from shardlab.training.checkpoint import CheckpointError, slices
from tests.shardlab.fsdp_models import gathered, sliced
from tests.shardlab.pool import on_ranks
from tests.shardlab.training.test_checkpoint import fake_gradient

CONFIG = GPTConfig(
    layers=2, hidden=8, heads=4, ffn=8, vocab=10, sequence=4, bias=False,
    experts=ExpertConfig(count=4, ffn=8, scores="sigmoid", bias_rate=0.1, shared=8),
)  # fmt: skip
Sizes = dict[str, int]


def setting(
    world: World, sizes: Sizes, seed: int = 0, config: GPTConfig = CONFIG
) -> tuple[GPT, AdamW, Grid]:
    grid = Grid(world=world, **sizes)  # type: ignore[arg-type]
    model = GPT(
        config, tensor=grid.tensor, sequence_parallel=True, seed=seed, stage=grid.pipeline.rank,
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


def collect_state(model: GPT, optimizer: AdamW) -> dict[str, Tensor]:
    state = {}
    for name, parameter in model.named_parameters():
        state[name] = whole(parameter).clone()
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{name}/{key}"] = (whole(parameter, value) if value.dim() else value).clone()
    return state


def saved(world: World, folder: str, sizes: Sizes, config: GPTConfig = CONFIG) -> dict[str, Tensor]:
    model, optimizer, grid = setting(world, sizes, 0, config)
    step(model, optimizer, 0)
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    step(model, optimizer, 1)
    return collect_state(model, optimizer)


def resumed(
    world: World, folder: str, sizes: Sizes, config: GPTConfig = CONFIG
) -> dict[str, Tensor]:
    model, optimizer, grid = setting(world, sizes, 1, config)
    checkpoint.load(folder, model=model, optimizer=optimizer, grid=grid)
    step(model, optimizer, 1)
    return collect_state(model, optimizer)


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
    for number, ((ranks, sizes), (next_ranks, next_sizes)) in enumerate(pairwise(MOVES)):
        folder = str(tmp_path / str(number))
        before = pool(ranks).run(saved, folder, sizes)
        after = pool(next_ranks).run(resumed, folder, next_sizes)
        right = {name: value for state in before for name, value in state.items()}
        for state in after:
            for name, value in state.items():
                assert torch.equal(value, right[name]), (sizes, next_sizes, name)
        assert {name for state in after for name in state} == right.keys()


@on_ranks(2)
def test_a_checkpoint_of_other_experts_is_refused(world: World, tmp_path: Path) -> None:
    folder = str(tmp_path)
    model, optimizer, grid = setting(world, {"expert": 2})
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    fewer = ExpertConfig(count=2, ffn=8)
    larger = GPT(
        GPTConfig(layers=2, hidden=8, heads=4, ffn=8, vocab=10, sequence=4, experts=fewer),
        tensor=grid.tensor, experts=ExpertAxes.of(grid),
    )  # fmt: skip
    with pytest.raises(CheckpointError, match="of another model: bias = False"):
        checkpoint.load(folder, model=larger, grid=grid)


# ------------------------------------------------------------------ experts inside FSDP

Moved = dict[str, Tensor]
STRATEGIES = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"]


def sharded(world: World, strategy: str, config: GPTConfig, seed: int) -> tuple[FSDP, AdamW, Grid]:
    grid = Grid(world=world)
    model = GPT(config, tensor=grid.tensor, seed=seed, experts=ExpertAxes.of(grid))
    units, way = model.layers.values(), ShardingStrategy[strategy]
    fsdp = FSDP(model, grid.data, units=units, strategy=way)
    return fsdp, AdamW([p for p in fsdp.parameters() if p.requires_grad], lr=0.01), grid


def sharded_step(model: FSDP, optimizer: AdamW, number: int) -> None:
    for flat in model.flats:
        named = zip(flat.layout.names, flat.leaves, strict=True)
        gradient = sliced(flat, [fake_gradient(*pair, number) for pair in named])
        if flat.shard_f.requires_grad:
            flat.shard_f.grad = gradient
        else:
            flat.shard_f.data += gradient
    optimizer.step()


def collect_sharded_state(model: FSDP, optimizer: AdamW) -> Moved:
    state: Moved = {}
    for flat in model.flats:
        for key, value in {"": flat.shard_f, **optimizer.state.get(flat.shard_f, {})}.items():
            parts = (
                gathered(flat, value) if value.dim() else dict.fromkeys(flat.layout.names, value)
            )
            state |= {f"{name}/{key}" if key else name: part for name, part in parts.items()}
    return {name: value.detach().clone() for name, value in state.items()}


def cut_inside(model: FSDP) -> bool:
    """Whether a rank's shard ends inside an expert."""
    pieces = [(flat, piece) for flat in model.flats for piece in flat.layout.pieces(flat.axis.rank)]
    return any(
        ".experts." in flat.layout.names[piece.parameter]
        and 0 < piece.stop - piece.start < flat.leaves[piece.parameter].numel()
        for flat, piece in pieces
    )


def saved_sharded(
    world: World, folder: str, strategy: str, config: GPTConfig
) -> tuple[Moved, bool]:
    model, optimizer, grid = sharded(world, strategy, config, seed=0)
    sharded_step(model, optimizer, 0)
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid)
    sharded_step(model, optimizer, 1)
    return collect_sharded_state(model, optimizer), cut_inside(model)


def resumed_sharded(world: World, folder: str, strategy: str, config: GPTConfig) -> Moved:
    model, optimizer, grid = sharded(world, strategy, config, seed=1)
    checkpoint.load(folder, model=model, optimizer=optimizer, grid=grid)
    sharded_step(model, optimizer, 1)
    return collect_sharded_state(model, optimizer)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("width", "inside"), [(8, False), (16, True)])
def test_experts_that_fsdp_cuts_go_on_from_any_other_grid_bit_for_bit(
    pool: Any, tmp_path: Path, strategy: str, width: int, inside: bool
) -> None:
    experts = ExpertConfig(count=2, ffn=width, scores="sigmoid", bias_rate=0.1)
    config = replace(CONFIG, experts=experts, dtype=torch.float64)
    whole_model, shards = str(tmp_path / "whole"), str(tmp_path / "shards")
    (right,) = pool(1).run(saved, whole_model, {}, config)
    cuts = pool(2).run(saved_sharded, shards, strategy, config)
    assert any(cut for _, cut in cuts) == (inside and strategy != "NO_SHARD"), "sizes miss the case"
    for ranks, sizes in [(1, {}), (2, {"expert": 2}), (2, {"pipeline": 2})]:
        for state in pool(ranks).run(resumed, shards, sizes, config):
            for name, value in state.items():
                assert torch.equal(value, right[name]), (sizes, name)
    for state in pool(2).run(resumed_sharded, whole_model, strategy, config):
        assert state.keys() == right.keys()
        assert all(torch.equal(value, right[name]) for name, value in state.items())


def save_without(world: World, folder: str, name: str, key: str) -> tuple[str, int]:
    """Save again as if no rank wrote one of the tensors; return the error and what is loaded."""
    model, optimizer, grid = sharded(world, "FULL_SHARD", CONFIG, seed=0)
    sharded_step(model, optimizer, 0)
    checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid, record={"save": 1})
    boxes, path = slices.ParameterRun.slice_tensor, f"{key}/{name}"

    def without(part: slices.ParameterRun, at: str, alike: Tensor) -> Any:
        return (replace(box, writes=box.writes and at != path) for box in boxes(part, at, alike))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CheckpointError) as error:
        patch.setattr(slices.ParameterRun, "slice_tensor", without)
        checkpoint.save(folder, model=model, optimizer=optimizer, grid=grid, record={"save": 2})
    return str(error.value), checkpoint.load(folder, model=model, grid=grid)["save"]


@pytest.mark.parametrize("key", ["model", "optimizer.exp_avg"])
def test_a_tensor_that_a_rank_holds_and_no_rank_writes_stops_the_save_on_all_ranks(
    pool: Any, tmp_path: Path, key: str
) -> None:
    name = "layers.1.mlp.experts.3.fc1.weight"
    for error, loaded in pool(2).run(save_without, str(tmp_path), name, key):
        assert f"{key}/{name} (8, 8) has 0 of its 64 elements in the index" in error
        assert loaded == 1, "the former checkpoint must still be there"
