"""The global gradient norm against `clip_grad_norm_` on the whole model in one process."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.data_parallel.gradient_norm import clip, gradient_norm, select_counted
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import Sharding, mark
from tests.shardlab.pool import on_ranks

F64 = torch.float64
GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (2, 4), (8, 1), (1, 8)]  # tensor, pipeline


def drawn(name: str, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return torch.randn(shape, generator=generator, dtype=F64)


def whole_gradients(stages: int) -> dict[str, Tensor]:
    """A model by hand: the embedding, tied to the head; on each stage a cut weight and a norm."""
    gradients = {"embedding": drawn("embedding", 8, 3)}
    for stage in range(stages):
        gradients[f"{stage}.weight"] = drawn(f"{stage}.weight", 4, 16)
        gradients[f"{stage}.norm"] = drawn(f"{stage}.norm", 5)
        gradients[f"{stage}.scale"] = drawn(f"{stage}.scale")
    return gradients


def on_this_rank(grid: Grid, device: torch.device) -> tuple[dict[str, nn.Parameter], list[Any]]:
    """What this rank holds of it, with gradients; and the copies among that."""
    tensor, pipe = grid.tensor, grid.pipeline
    local_parameters = {}
    for name, gradient in whole_gradients(pipe.size).items():
        if name == "embedding" and pipe.rank not in (0, pipe.size - 1):
            continue
        if name != "embedding" and not name.startswith(f"{pipe.rank}."):
            continue
        local, sharding = gradient.to(device), None
        if gradient.dim() == 2:
            dim = 1 if name.endswith("weight") else 0
            sharding = Sharding(tensor, dim, gradient.shape[dim], gradient.shape[dim])
            local = sharding.local(local)
        local_parameters[name] = nn.Parameter(torch.zeros_like(local))
        local_parameters[name].grad = local.clone()
        if sharding:
            mark(local_parameters[name], sharding)
    copies = [local_parameters["embedding"]] if pipe.size > 1 and pipe.rank == pipe.size - 1 else []
    return local_parameters, copies


def expected(stages: int, max_norm: float) -> tuple[float, dict[str, Tensor]]:
    parameters = {n: nn.Parameter(torch.zeros_like(g)) for n, g in whole_gradients(stages).items()}
    for name, gradient in whole_gradients(stages).items():
        parameters[name].grad = gradient
    norm = torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)
    return float(norm), {n: p.grad for n, p in parameters.items() if p.grad is not None}


def errors(world: World, max_norm: float) -> list[tuple[Any, float, float]]:
    """For each grid: relative error of the norm, and of the clipped gradients."""
    results = []
    for tensor, pipeline in GRIDS:
        if world.size % (tensor * pipeline):
            continue
        grid = Grid(world=world, tensor=tensor, pipeline=pipeline)
        model = grid.axis("tensor", "pipeline")
        parameters, copies = on_this_rank(grid, world.device)
        norm = gradient_norm(parameters.values(), model, tensor=grid.tensor, copies=copies)
        clip(parameters.values(), norm, max_norm)
        right, gradients = expected(pipeline, max_norm)
        worst = 0.0
        for name, parameter in parameters.items():
            cut = getattr(parameter, "sharding", None)
            target = gradients[name].to(world.device)
            target = cut.local(target) if cut else target
            worst = max(worst, float((parameter.grad - target).abs().max()))
        results.append(((tensor, pipeline), abs(float(norm) / right - 1), worst))
    return results


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_each_parameter_is_counted_once_on_every_grid(pool: Any, ranks: int) -> None:
    for results in pool(ranks).run(errors, 0.75):
        for case, norm, gradients in results:
            assert norm <= 1e-12 and gradients <= 1e-12, (case, norm, gradients)


def test_a_norm_below_the_limit_leaves_gradients_as_they_are(pool: Any) -> None:
    for results in pool(2).run(errors, 1e6):
        assert all(gradients == 0 for _, _, gradients in results)


@on_ranks(2)
def test_one_rank_s_nan_reaches_all(world: World) -> None:
    parameter = nn.Parameter(torch.zeros(2, device=world.device))
    parameter.grad = torch.full((2,), math.nan if world.rank else 1.0, device=world.device)
    sharding = Sharding(world.whole, 0, 2 * world.size, 2 * world.size)
    mark(parameter, sharding)
    norm = gradient_norm([parameter], world.whole, tensor=world.whole)
    clip([parameter], norm, 1.0)
    norm, gradient = [float(norm), float(parameter.grad[0])]
    assert math.isnan(norm) and math.isnan(gradient)


def test_a_parameter_listed_twice_is_counted_once() -> None:
    weight = nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    bare = nn.Parameter(torch.ones(3))
    empty = nn.Parameter(torch.ones(0))
    empty.grad = torch.ones(0)
    axis = Axis.alone()
    parameters = [weight, bare, weight, empty]
    assert select_counted(parameters, axis) == [weight, bare, empty]
    assert float(gradient_norm(parameters, axis, tensor=axis)) == 2.0
    clip(parameters, torch.tensor(2.0), 1.0)
    assert torch.allclose(weight.grad, torch.full((4,), 0.5))
    assert float(gradient_norm([bare], axis, tensor=axis)) == 0.0


def test_half_precision_gradients_do_not_overflow_and_dtypes_mix() -> None:
    wide, narrow = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(4, dtype=torch.float16))
    wide.grad, narrow.grad = torch.full((3,), 2e5), torch.full((4,), 6e4, dtype=torch.float16)
    axis = Axis.alone()
    results = float(gradient_norm([wide, narrow], axis, tensor=axis))
    assert results == pytest.approx(math.sqrt(3 * 2e5**2 + 4 * 59999.0**2), rel=1e-4)
    clip([wide, narrow], torch.tensor(results), 1.0)
    assert float(gradient_norm([wide, narrow], axis, tensor=axis)) == pytest.approx(1, rel=1e-3)


def test_a_limit_that_is_no_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="max_norm is 0"):
        clip([], torch.ones(()), 0)


@on_ranks(4)
def test_it_costs_one_all_reduce_of_eight_bytes(world: World) -> None:
    from shardlab.proofs.ledger import Ledger

    grid = Grid(world=world, tensor=2, pipeline=2)
    model = grid.axis("tensor", "pipeline")
    parameters, copies = on_this_rank(grid, world.device)
    with Ledger() as ledger:
        gradient_norm(parameters.values(), model, tensor=grid.tensor, copies=copies)
    ops, payload = [e.op for e in ledger.entries], sum(e.payload for e in ledger.entries)
    assert ops == ["all_reduce"] and payload == 8
