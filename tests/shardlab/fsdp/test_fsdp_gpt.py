"""FSDP around the GPT of this library: alone, beside tensor parallelism, and both with clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients
from shardlab.layers.sharding import sharding_of
from tests.shardlab.default_device import on_default_device
from tests.shardlab.fsdp_models import gathered

Pool = Callable[[int], Any]
CONFIG = GPTConfig(
    layers=2, hidden=8, heads=4, vocab=13, sequence=4, dtype=torch.float64, init_std=0.3
)
STEPS = 10


def data(rank: int, step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cpu").manual_seed(1 + rank + 100 * step)
    shape = (2, 2, CONFIG.sequence)
    drawn = torch.randint(CONFIG.vocab, shape, generator=generator, device="cpu")
    tokens, targets = drawn.to(torch.get_default_device())
    return tokens, targets


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def unsharded(ranks: int) -> tuple[list[float], dict[str, Tensor]]:
    """Norms of the gradients before clipping, by step, and the parameters at the end."""
    model = GPT(CONFIG, tensor=Axis.alone(), device=torch.get_default_device())
    optimizer, norms = sgd(model.parameters()), []
    for step in range(STEPS):
        for rank in range(ranks):
            tokens, targets = data(rank, step)
            (model.loss(model(tokens), targets) / ranks).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    return norms, dict(model.named_parameters())


@on_default_device
def composed(world: World, tensor: int, sequence_parallel: bool) -> float:
    grid = Grid(world=world, tensor=tensor)
    norms, expected = unsharded(grid.data.size)
    worst = 0.0
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        module = GPT(
            CONFIG, tensor=grid.tensor, sequence_parallel=sequence_parallel, device=world.device
        )
        shardings = {name: sharding_of(p) for name, p in module.named_parameters()}
        model = FSDP(
            module, grid.data, units=module.layers.values(), strategy=strategy,
            forward_prefetch=True,
        )  # fmt: skip
        optimizer = sgd(model.parameters())
        for step in range(STEPS):
            tokens, targets = data(grid.data.rank, step)
            module.loss(model(tokens), targets).backward()
            pieces = [piece for _, piece in model.local_parameters()]
            partial_gradients.reduce(pieces, grid.tensor)
            norm = model.clip_grad_norm_(
                1.0, axis=grid.axis("tensor", "data"), tensor=grid.tensor
            ).item()
            worst = max(worst, abs(norm - norms[step]) / norms[step])
            optimizer.step()
            optimizer.zero_grad()
        for flat in model.flats:
            for name, local in gathered(flat, flat.shard_f).items():
                cut = shardings[name]
                whole = local if cut is None else cut.whole(local)
                error = (whole - expected[name]).norm() / expected[name].norm().clamp_min(1e-30)
                worst = max(worst, error.item())
    return worst


def test_fsdp_beside_tensor_parallelism_equals_one_process(pool: Pool) -> None:
    for worst in [*pool(4).run(composed, 2, False), *pool(4).run(composed, 2, True)]:
        assert worst < 1e-12


def test_fsdp_around_the_gpt_equals_one_process(pool: Pool) -> None:
    for worst in pool(2).run(composed, 1, False):
        assert worst < 1e-12
