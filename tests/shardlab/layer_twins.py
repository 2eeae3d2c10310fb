"""One of our layers and its counterpart elsewhere, given the same weights and trained alike.

Dimensions: S sequence, B batch, H input features, F output features; lower case where sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.layers import ops, partial_gradients
from shardlab.layers.init import Init
from shardlab.layers.sharding import load_whole, sharding_of, whole
from tests.shardlab.difference import random_like
from tests.shardlab.reference import relative_error

S, B, H, F = 8, 2, 16, 24
STEPS = 4
Call = Callable[[Tensor], Tensor]
Errors = dict[str, dict[str, float]]


def fp64(world: World) -> Init:
    """Where and in which dtype our layers' parameters are made."""
    return Init(dtype=torch.float64, device=world.device)


def steps_for(ranks: int, index: int) -> int:
    """How many steps the variant `index` of a test trains.

    Over gloo, eight ranks on two cores need 20 ms for the smallest all-reduce. So up to four ranks
    train four steps in the first variant; the others, and eight ranks, train two, which is one more
    than a wrong gradient needs to show.
    """
    return STEPS if index == 0 and ranks < 8 else 2


def trained(
    world: World, layer: nn.Module, call: Call, x: Tensor, target: Tensor, steps: int = STEPS
) -> dict[str, Tensor]:
    """First output and gradients, and the parameters after some steps of SGD towards `target`."""
    seen: dict[str, Tensor] = {}
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, momentum=0.9)
    frozen = not any(parameter.requires_grad for parameter in layer.parameters())
    for step in range(1 if frozen else steps):
        x = x.detach().requires_grad_(x.is_floating_point())
        optimizer.zero_grad()
        y = call(x)
        ((y - target) ** 2).sum().div(S * B).backward()  # a sum: alike however y is cut
        finish(world, layer)
        if step == 0:
            seen = {"output": y.detach()} | {
                f"gradient of {name}": p.grad.clone()
                for name, p in [("the input", x), *layer.named_parameters()]
                if p.grad is not None
            }
        optimizer.step()
    return seen | {name: p.detach() for name, p in layer.named_parameters()}


def finish(world: World, layer: nn.Module) -> None:
    """Sum what sequence parallelism leaves partial, in each library's own way of marking it."""
    partial_gradients.reduce(layer, world.whole)
    for parameter in layer.parameters():
        if getattr(parameter, "sequence_parallel", False) and parameter.grad is not None:
            world.whole.all_reduce(parameter.grad, out=parameter.grad)


def part(world: World, whole: Tensor, dim: int | None) -> Tensor:
    """This rank's part along `dim`; all of it for None."""
    return whole if dim is None else whole.chunk(world.size, dim)[world.rank].contiguous()


def copied(world: World, ours: nn.Module, reference: nn.Module, names: Mapping[str, str]) -> None:
    """Give both the same values, a sharded parameter other values on each rank.

    `names` maps our parameters' names to theirs.
    """
    with torch.no_grad():
        for index, (name, parameter) in enumerate(ours.named_parameters()):
            seed = index + (100 * (1 + world.rank) if sharding_of(parameter) else 0)
            parameter.copy_(random_like(*parameter.shape, seed=seed) / parameter.shape[-1] ** 0.5)
            reference.get_parameter(names[name]).copy_(parameter)


def layer_errors(
    layer: nn.Module, reference: nn.Module, x_BSH: Tensor, axis: Axis, *, sequence_parallel: bool
) -> dict[str, float]:
    """Relative errors of a layer's output and gradients, by name, with the reference's weights."""
    load_whole(layer, dict(reference.named_parameters()))
    g_BSH = torch.randn_like(x_BSH)
    reference_x = x_BSH.clone().requires_grad_()
    expected = reference(reference_x)
    expected.backward(g_BSH)

    def rows(t: Tensor) -> Tensor:
        return (
            ops.local_slice(t.transpose(0, 1), axis, 0) if sequence_parallel else t.transpose(0, 1)
        )

    ours = rows(x_BSH).detach().requires_grad_()
    y = layer(ours)
    y.backward(rows(g_BSH))
    partial_gradients.reduce(layer, axis)
    assert reference_x.grad is not None
    errors = {
        "y": relative_error(y, rows(expected)),
        "dx": relative_error(ours.grad, rows(reference_x.grad)),
    }
    wanted = dict(reference.named_parameters())
    for name, parameter in layer.named_parameters():
        errors[name] = relative_error(whole(parameter, parameter.grad), wanted[name].grad)
    return errors
