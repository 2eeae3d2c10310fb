"""Traps of tensor parallelism that no layer's own test catches; the fault is in the docstring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.layers import ops
from shardlab.layers.init import Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from tests.shardlab.pool import on_ranks

S, B, H, F = 4, 2, 8, 12
EXACT = 1e-12


def init(world: World) -> Init:
    return Init(dtype=torch.float64, std=0.5, device=world.device)


def noise(world: World, *shape: int, key: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(key)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(world.device)


@on_ranks(2)
def test_an_input_used_twice_gets_both_gradients_and_keeps_its_values(world: World) -> None:
    """Fault: the row's all-reduce, or copy_to's backward, in place on what it was given.

    megatron-core 0.16.1 does the first in `_reduce` (core/tensor_parallel/mappings.py).
    """
    axis = world.whole
    column = ColumnParallelLinear(H, F, axis=axis, init=init(world))
    row = RowParallelLinear(F, H, axis=axis, init=init(world))
    calls: dict[str, tuple[Any, int]] = {
        "column": (column, H),
        "row": (row, F // axis.size),
        "copy_to": (lambda x: ops.copy_to(x, axis), H),
        "reduce_from": (lambda x: ops.reduce_from(x, axis), H),
    }
    for name, (call, width) in calls.items():
        x = noise(world, S, B, width).requires_grad_()
        before = x.detach().clone()
        g = noise(world, *call(x).shape, key=1)
        kept_g = g.clone()
        (once,) = torch.autograd.grad(call(x), x, g)
        (twice,) = torch.autograd.grad(call(x) + call(x), x, g)
        # x feeds the op and, unchanged, something else: a change in place would show there.
        (with_residual,) = torch.autograd.grad([call(x), x * 3], x, [g, torch.ones_like(x)])
        assert torch.equal(x.detach(), before), f"{name} changed its input"
        assert torch.equal(g, kept_g), f"{name} changed the incoming gradient"
        assert torch.allclose(twice, 2 * once, rtol=EXACT), name
        assert torch.allclose(with_residual, once + 3, rtol=EXACT), name
