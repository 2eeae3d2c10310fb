"""Our linear layers beside megatron-core's, from the same weights, on real processes.

A wrong slice or a missing reduction shows in the output or the input's gradient; a bias added on
every rank, or reduced twice, in the bias; a gradient that is only partial where Megatron's is
whole, in the parameters after some optimizer steps.

Dimensions: S sequence, B batch, H input features, F output features; lower case where sharded.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from costlab.implementations import megatron as mcore
from shardlab.comm import World
from shardlab.layers import linear
from shardlab.layers.init import Init
from shardlab.layers.matmul import fuse
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import demand_alike, differences, random_like
from tests.shardlab.layer_twins import B, Errors, F, H, S, copied, fp64, part, steps_for, trained


def linears(world: World, kind: str) -> Errors:
    """Every variant; `whole` says that the column's output, or the row's input, is not cut."""
    errors, is_column = {}, kind == "column"
    make, twin = (
        (linear.ColumnParallelLinear, mcore.ColumnParallelLinear)
        if is_column
        else (linear.RowParallelLinear, mcore.RowParallelLinear)
    )
    with default_device(world), mcore.megatron(tensor=world.size):
        for bias, whole, skip, sequence, frozen in product([False, True], repeat=5):
            if (sequence and (whole or world.size == 1)) or (skip and not bias):
                continue
            config = mcore.config(hidden=H, sequence_parallel=sequence)
            shared = {"gather_output": whole} if is_column else {"input_is_parallel": not whole}
            shared |= {"bias": bias, "skip_bias_add": skip}
            ours = make(
                H, F, axis=world.whole, sequence_parallel=sequence, init=fp64(world), **shared
            )
            reference = twin(H, F, config=config, init_method=nn.init.ones_, **shared)
            cut_x, cut_y = (0, -1) if is_column else (-1, 0)
            x, target = random_like(S, B, H, seed=1), random_like(S, B, F, seed=2)
            if sequence if is_column else not whole:
                x = part(world, x, cut_x)
            target = (
                part(world, target, cut_y) if (not whole if is_column else sequence) else target
            )
            case = f"{bias=} {whole=} {skip=} {sequence=} {frozen=}"
            add_bias = skip and not (is_column and whole)
            errors[case] = compare(world, ours, reference, x, target, add_bias, frozen, len(errors))
    return errors


def compare(
    world: World,
    ours: Any,
    reference: Any,
    x: Tensor,
    target: Tensor,
    add_bias: bool,
    frozen: bool,
    index: int,
) -> dict[str, float]:
    """`add_bias`: whoever calls adds the bias that the layer left out."""
    copied(world, ours, reference, {name: name for name, _ in ours.named_parameters()})
    for layer in (ours, reference):
        for parameter in layer.parameters():  # Megatron's column layer never freezes one alone
            parameter.requires_grad_(not frozen)

    def our_call(x: Tensor) -> Tensor:
        y: Tensor = ours(x)
        return y + ours.bias if add_bias and ours.bias is not None else y

    def reference_call(x: Tensor) -> Tensor:
        y: Tensor
        y, bias = reference(x)
        return y + bias if add_bias and bias is not None else y

    steps = steps_for(world.size, index)
    return differences(
        trained(world, ours, our_call, x, target, steps),
        trained(world, reference, reference_call, x, target, steps),
    )


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.ci), 8])
@pytest.mark.parametrize("kind", ["column", "row"])
def test_a_linear_layer_equals_megatrons(pool: Any, kind: str, size: int) -> None:
    demand_alike(pool(size).run(linears, kind))


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
                x = part(world, integers, 0) if sequence else integers
            else:
                pair = (
                    linear.RowParallelLinear(H, F, **settings),
                    mcore.RowParallelLinear(H, F, input_is_parallel=True, **megatron_settings),
                )
                x = part(world, integers, -1)
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
