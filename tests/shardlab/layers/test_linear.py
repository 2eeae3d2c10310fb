"""The two linears against torch's, on whole weights; what overlaps is test_matmul.py's.

A wrong slice or a missing reduction fails the equality; so does a change of an input or of an
incoming gradient, and a collective in the wrong place of layers that compose to the right model.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import World
from shardlab.layers import ops, partial_gradients
from shardlab.layers.init import Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.matmul import fuse
from shardlab.layers.sharding import load_whole, whole
from tests.shardlab.pool import on_ranks
from tests.shardlab.reference import relative_error

SIZES = [1, 2, 4, 8]
S, B, H, F = 8, 2, 16, 24
EXACT = 1e-12
FP64 = Init(dtype=torch.float64)


def noise(*shape: int, key: int, strided: bool = False, device: Any = "cpu") -> Tensor:
    """fp64, the same on every rank; `strided`: with every second number of a wider tensor."""
    generator = torch.Generator().manual_seed(key)
    wide = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator, dtype=torch.float64)
    x = wide.to(device)[..., ::2]
    return x if strided else x.contiguous()


def torch_linear(bias: bool, device: torch.device) -> nn.Linear:
    layer = nn.Linear(H, F, bias=bias, dtype=torch.float64, device=device)
    with torch.no_grad():
        for key, parameter in enumerate(layer.parameters()):
            parameter.copy_(noise(*parameter.shape, key=key))
    return layer


def compare(layer: Any, x_whole: Tensor, scattered: tuple[str, str], strided: bool) -> list[str]:
    """Run `layer` beside torch's; name what differs.

    `scattered` says how x and y lie over the axis: "" for whole on every rank, "rows" for cut along
    S, "features" for cut along the last dim.
    """
    axis, device = layer.axis, x_whole.device
    reference = torch_linear(layer.bias is not None, device)
    load_whole(layer, dict(reference.named_parameters()))
    dims = {"": None, "rows": 0, "features": -1}
    x_dim, y_dim = (dims[how] for how in scattered)

    def local(t: Tensor, dim: int | None) -> Tensor:
        piece = t if dim is None else ops.local_slice(t, axis, dim)
        return piece if strided else piece.contiguous()

    x = local(x_whole, x_dim).detach().requires_grad_()
    x_reference = x_whole.detach().clone().requires_grad_()
    y, y_reference = layer(x), reference(x_reference)
    if layer.skip_bias_add and layer.bias is not None:
        y = y + layer.bias
    grad = noise(*y_reference.shape, key=9, strided=strided, device=device)
    y_grad = local(grad, y_dim)
    before = x.detach().clone(), y_grad.clone()
    y.backward(y_grad)
    y_reference.backward(grad)
    partial_gradients.reduce(layer, axis)
    pairs = {
        "y": (y, local(y_reference, y_dim)),
        "dx": (x.grad, local(x_reference.grad, x_dim)),
        "dW": (whole(layer.weight, layer.weight.grad), reference.weight.grad),
    }
    if layer.bias is not None:
        pairs["db"] = (whole(layer.bias, layer.bias.grad), reference.bias.grad)
    wrong = [name for name, (a, b) in pairs.items() if not relative_error(a, b) <= EXACT]
    wrong += ["x was changed"] * (not torch.equal(x, before[0]))
    wrong += ["dY was changed"] * (not torch.equal(y_grad, before[1]))
    return wrong


# How x and y are placed under each option; see `compare`.
COLUMN: list[tuple[dict[str, bool], tuple[str, str]]] = [
    ({}, ("", "features")),
    ({"gather_output": True}, ("", "")),
    ({"skip_bias_add": True}, ("", "features")),
    ({"sequence_parallel": True}, ("rows", "features")),
    ({"sequence_parallel": True, "gather_output": True}, ("rows", "")),
]
ROW: list[tuple[dict[str, bool], tuple[str, str]]] = [
    ({}, ("features", "")),
    ({"input_is_parallel": False}, ("", "")),
    ({"skip_bias_add": True}, ("features", "")),
    ({"sequence_parallel": True}, ("features", "rows")),
    ({"sequence_parallel": True, "skip_bias_add": True}, ("features", "rows")),
]


@pytest.mark.parametrize("size", SIZES)
@on_ranks("size")
def test_every_variant_equals_the_whole_linear(world: World) -> None:
    wrong = {}
    variants = [(ColumnParallelLinear, *way) for way in COLUMN]
    variants += [(RowParallelLinear, *way) for way in ROW]
    for (make, options, scattered), bias, strided, is_fused in itertools.product(
        variants, (True, False), (True, False), (True, False)
    ):
        layer = make(H, F, axis=world.whole, bias=bias, init=FP64, **options).to(world.device)
        if is_fused:
            fuse(layer)
        x = noise(S, B, H, key=3, strided=strided, device=world.device)
        case = f"{make.__name__} {bias=} {options} {strided=} {is_fused=}"
        wrong[case] = compare(layer, x, scattered, strided)
    assert {case: names for case, names in wrong.items() if names} == {}


@on_ranks(2)
def test_what_cannot_be_is_refused_with_a_way_out(world: World) -> None:
    axis = world.whole
    with pytest.raises(ValueError, match="size 2 does not divide 7 output features of head"):
        ColumnParallelLinear(4, 7, axis=axis, name="head")
    with pytest.raises(ValueError, match="does not divide 7 input features"):
        RowParallelLinear(7, 4, axis=axis)
    with pytest.raises(ValueError, match="needs input_is_parallel=True"):
        RowParallelLinear(8, 4, axis=axis, input_is_parallel=False, sequence_parallel=True)
    layer = fuse(ColumnParallelLinear(4, 8, axis=axis), gradient_accumulation=True)
    with pytest.raises(ValueError, match=r"needs weight.main_grad of shape \(4, 4\), found none"):
        layer(torch.zeros(1, 1, 4))
    with torch.no_grad():  # an evaluation, by a copy that is an average say, adds to none
        assert layer(torch.zeros(1, 1, 4)).shape == (1, 1, 4)
    fused = fuse(ColumnParallelLinear(4, 8, axis=axis))
    x = torch.zeros(1, 1, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(fused(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
