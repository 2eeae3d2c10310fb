"""The global gradient norm: what it counts, and what it costs.

That it is the norm of one process on every grid, and clips as that does, the compositions prove.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from shardlab.comm import Axis, World
from shardlab.data_parallel.gradient_norm import clip, gradient_norm, select_counted
from shardlab.layers.sharding import Sharding, mark
from tests.shardlab.pool import on_ranks

F64 = torch.float64


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


def test_a_norm_below_the_limit_leaves_gradients_as_they_are() -> None:
    weight = nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    clip([weight], torch.tensor(2.0), 3.0)
    assert torch.equal(weight.grad, torch.ones(4))


def test_a_limit_that_is_no_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="max_norm is 0"):
        clip([], torch.ones(()), 0)
