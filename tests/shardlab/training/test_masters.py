"""Master weights: fp32 Adam to the bit on any grid, and a checkpoint that FSDP and fp32 go on from.

If the first fails, gradients or copies are not what the optimizer steps on; if only the last does,
the checkpoint holds the rounding.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from shardlab.comm import Axis, World
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.fsdp import FSDP
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import load_whole, whole, whole_parameters
from shardlab.training import checkpoint
from shardlab.training.masters import make_masters, master_of, serve_masters
from shardlab.training.step import StepGradients
from tests.shardlab.training.test_checkpoint import CONFIG, everything, fake_gradient, fake_step
from tests.shardlab.training.test_step import CONFIG as STEPPED
from tests.shardlab.training.test_step import backward, tokens

BF16 = replace(CONFIG, dtype=torch.bfloat16)


def test_a_frozen_parameter_is_its_own_master() -> None:
    frozen = nn.Parameter(torch.ones(2, dtype=torch.bfloat16), requires_grad=False)
    assert make_masters([frozen])[0] is frozen is master_of(frozen)


def test_weights_that_are_put_into_the_model_reach_its_masters() -> None:
    model, source = (GPT(BF16, tensor=Axis.alone(), seed=seed) for seed in (0, 1))
    optimizer = SGD(make_masters(model.parameters()), lr=0.0)
    serve_masters(model.parameters(), optimizer)
    load_whole(model, whole_parameters(source))
    for parameter in model.parameters():
        parameter.main_grad = torch.zeros(parameter.shape)  # type: ignore[attr-defined]
    optimizer.step()
    assert all(map(torch.equal, model.parameters(), source.parameters()))


def made_equal(world: World) -> list[float]:
    """Masters, and only then what makes the replicas equal; a step."""
    weight = nn.Parameter(torch.full((2,), 1.0 + world.rank, dtype=torch.bfloat16))
    optimizer = SGD(make_masters([weight]), lr=0.5)
    serve_masters([weight], optimizer)
    replicas = DataParallel([("weight", weight)], world.whole, main_grads=torch.float32)
    replicas.zero_grad()
    weight.sum().backward()
    replicas.finish()
    optimizer.step()
    return [float(value) for value in weight]


def test_replicas_that_are_made_equal_have_equal_masters(pool: Any) -> None:
    assert pool(2).run(made_equal) == [[0.5, 0.5]] * 2


def trained(world: World, tensor: int) -> list[str]:
    """Three clipped steps; what then differs from AdamW on fp32 copies of one's own."""
    grid = Grid(world=world, tensor=tensor, pipeline=2)
    model = GPT(
        replace(STEPPED, dtype=torch.bfloat16), tensor=grid.tensor, sequence_parallel=True,
        stage=grid.pipeline.rank, stages=2, device=world.device,
    )  # fmt: skip
    gradients = StepGradients(
        model, grid, microbatches=2, max_norm=0.1, start="verify", main_grads=torch.float32
    )
    named = dict(model.named_parameters())
    optimizer = AdamW(make_masters(named.values()), lr=0.01)
    serve_masters(named.values(), optimizer)
    copies = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    right = AdamW(copies.values(), lr=0.01)
    for _ in range(3):
        gradients.zero_grad()
        backward(world, model, grid, tokens(world, 8).chunk(grid.data.size)[grid.data.rank])
        assert gradients.finish() > 0.1, "clipping does something"
        for name, copy in copies.items():
            copy.grad = named[name].main_grad.clone()  # type: ignore[attr-defined]
        optimizer.step()
        right.step()
    return [
        name
        for name, p in named.items()
        if not torch.equal(master_of(p), (copy := copies[name]))
        or not torch.equal(p, copy.bfloat16())
    ]


@pytest.mark.parametrize(("ranks", "tensor"), [(2, 1), pytest.param(8, 2, marks=pytest.mark.ci)])
def test_a_step_is_that_of_fp32_adam_on_fp32_copies(pool: Any, ranks: int, tensor: int) -> None:
    assert pool(ranks).run(trained, tensor) == [[]] * ranks


# ---------------------------------------------------------------------- the checkpoint

State = dict[str, Tensor]


def on_grid(world: World, tensor: int, folder: str, begin: int) -> State:
    """From step `begin`, loaded if not the first, two steps on masters, saved; what is kept."""
    grid = Grid(world=world, tensor=tensor)
    model = GPT(BF16, tensor=grid.tensor, seed=begin, device=world.device)
    optimizer = AdamW(make_masters(model.parameters()), lr=0.01)
    serve_masters(model.parameters(), optimizer)
    if begin:
        checkpoint.load(folder, model=model, grid=grid, optimizer=optimizer)
        assert all(torch.equal(p, master_of(p).bfloat16()) for p in model.parameters())
    for step in (begin, begin + 1):
        for name, parameter in model.named_parameters():
            gradient = fake_gradient(name, parameter, step).float()
            parameter.main_grad = gradient  # type: ignore[attr-defined]
        optimizer.step()
    checkpoint.save(folder, model=model, grid=grid, optimizer=optimizer)
    state = {}
    for name, p in model.named_parameters():
        state[name] = whole(p, master_of(p).detach()).cpu().clone()
        for key, value in optimizer.state[master_of(p)].items():
            state[f"{name}/{key}"] = (whole(p, value) if value.dim() else value).cpu().clone()
    return state


def on_shards(world: World, folder: str, begin: int) -> State:
    """The same under FSDP that computes in bf16: its shards are fp32."""
    grid = Grid(world=world)
    model = GPT(CONFIG, tensor=grid.tensor, seed=begin, device=world.device)
    fsdp = FSDP(
        model, grid.data, units=model.layers.values(),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32),
    )  # fmt: skip
    optimizer = AdamW(fsdp.parameters(), lr=0.01)
    checkpoint.load(folder, model=fsdp, grid=grid, optimizer=optimizer)
    for step in (begin, begin + 1):
        fake_step(fsdp, optimizer, step)
    checkpoint.save(folder, model=fsdp, grid=grid, optimizer=optimizer)
    return everything(fsdp, optimizer)


def in_fp32(world: World, folder: str) -> State:
    """The same weights in a model of fp32."""
    grid = Grid(world=world)
    model = GPT(CONFIG, tensor=grid.tensor, seed=9, device=world.device)
    optimizer: Optimizer = AdamW(model.parameters(), lr=0.01)
    checkpoint.load(folder, model=model, grid=grid, optimizer=optimizer)
    return everything(model, optimizer)


def test_masters_go_on_bit_for_bit_on_another_grid_under_fsdp_and_in_fp32(
    pool: Any, tmp_path: Path
) -> None:
    alone, moved = str(tmp_path / "alone"), str(tmp_path / "moved")
    for begin in (0, 2, 4):
        [expected] = pool(1).run(on_grid, 1, alone, begin)
    pool(2).run(on_grid, 2, moved, 0)
    pool(2).run(on_shards, moved, 2)
    states = pool(2).run(on_grid, 1, moved, 4) + pool(1).run(in_fp32, moved)
    for state in states:
        assert state.keys() == expected.keys()
        assert [name for name in state if not torch.equal(state[name], expected[name])] == []
