"""Our linear layers add their weights' gradients into `main_grad` as megatron-core's do.

Dimensions: S sequence, B batch, H input features, F output features; lower case where sharded.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from costlab.implementations import megatron as mcore
from shardlab.comm import World
from shardlab.layers import linear
from shardlab.layers.init import Init
from shardlab.layers.matmul import fuse
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import demand_alike, differences, random_like
from tests.shardlab.gpt_twins import Errors

S, B, H, F = 8, 2, 16, 24


def accumulate(world: World) -> Errors:
    """Integers in fp32, so that sums are exact and equality is of bits: the kernel wants fp32."""
    errors = {}
    with default_device(world), mcore.megatron(tensor=world.size):
        pair: tuple[nn.Module, nn.Module]
        for kind, sequence in product(["column", "row"], [False, True]):
            config = mcore.config(
                hidden=H, sequence_parallel=sequence, gradient_accumulation_fusion=True,
                dtype=torch.float32,
            )  # fmt: skip
            settings: dict[str, Any] = {
                "axis": world.whole,
                "sequence_parallel": sequence,
                "init": Init(device=world.device),
            }
            megatron_settings: dict[str, Any] = {
                "config": config, "init_method": nn.init.ones_, "skip_bias_add": False, "bias": True
            }  # fmt: skip
            integers = random_like(S, B, H, seed=1).mul(3).round().float()
            if kind == "column":
                pair = (
                    linear.ColumnParallelLinear(H, F, **settings),
                    mcore.ColumnParallelLinear(H, F, gather_output=False, **megatron_settings),
                )
                x = integers.chunk(world.size)[world.rank] if sequence else integers
            else:
                pair = (
                    linear.RowParallelLinear(H, F, **settings),
                    mcore.RowParallelLinear(H, F, input_is_parallel=True, **megatron_settings),
                )
                x = integers.chunk(world.size, -1)[world.rank].contiguous()
            fuse(pair[0], gradient_accumulation=True)
            errors[f"{kind} {sequence=}"] = differences(*(into_main_grad(each, x) for each in pair))
    return errors


def into_main_grad(layer: Any, x: Tensor) -> dict[str, Tensor]:
    """Two micro-batches into a `main_grad` that already holds ones."""
    layer.weight.main_grad = torch.ones_like(layer.weight)
    x = x.detach().requires_grad_()
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(1.0)
    for scale in (1.0, 3.0):
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        y.backward(torch.arange(y.numel(), dtype=y.dtype).view_as(y) % 7 * scale)
    assert layer.weight.grad is None
    assert x.grad is not None
    return {"main_grad": layer.weight.main_grad, "input": x.grad, "bias": layer.bias.grad}


def test_the_weights_gradient_is_added_into_main_grad_as_megatrons(pool: Any) -> None:
    demand_alike(pool(2).run(accumulate), tolerance=0.0)
