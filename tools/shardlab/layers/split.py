"""Backward in two: what the stage before waits for now, the weights' gradients later.

    dgrad     dX_SBH = dY_SBF W_FH     in backward, with all that crosses the tensor axis
    wgrad     dW_FH = dY_SBFᵀ X_SBH    when `compute` is told to; local, nothing waits for it

The weight enters the graph detached: backward then keeps the factors dY and X instead of
multiplying them, and no hook takes the weight's gradient for done. `compute` gives the product to
autograd as the gradient of the weight itself, so that it adds up and its hooks run as they do after
any backward: data parallelism reduces it then and not before. Biases, norms and embeddings cost
little and stay in backward. A zero-bubble schedule wants this (Qi et al. 2023).

Dimensions: S sequence, B batch, H input features, F output features, N = S·B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from shardlab.layers import ops
from shardlab.layers.linear import product_dtype

# The factors dY_NF and X_NH of each weight's gradient; several pairs where it was used often.
Left = dict[nn.Parameter, list[tuple[Tensor, Tensor]]]


@contextmanager
def split(modules: Sequence[nn.Module]) -> Iterator[Left]:
    """Have linears, heads and experts in `modules` leave their weights' gradients to `compute`.

    A weight that two modules share (a tied head beside its embedding) is left whole: half of its
    gradient comes in backward, and it must come in one.

    Yields:
        what the backwards leave; take it out of there after each.

    Raises:
        ValueError: a weight is no parameter of its module (under FSDP), or its gradient goes
            to `main_grad` by `fuse(gradient_accumulation=True)`.
    """
    left: Left = {}
    before: list[tuple[Any, ...]] = []
    holders = [id(p) for m in modules for one in m.modules() for p in one.parameters(recurse=False)]
    linears: list[Any] = [m for chunk in modules for m in chunk.modules() if hasattr(m, "fused")]
    try:
        for module in linears:
            _demand_ours(module)
            if all(holders.count(id(p)) == 1 for p in module.parameters(recurse=False)):
                before.append((module, module.linear, module.fused))
                module.linear, module.fused = partial(_linear, left), None
        yield left
    finally:
        for module, *were in before:
            module.linear, module.fused = were


def compute(left: Left) -> None:
    """Multiply what a backward left; each weight's gradient arrives as if from that backward."""
    for weight, factors in left.items():
        grad_FH = reduce(torch.add, (grad_NF.t() @ x_NH for grad_NF, x_NH in factors))
        torch.autograd.backward(weight, grad_FH.to(weight.dtype))


def _demand_ours(module: nn.Module) -> None:
    if not any(p.dim() > 1 for p in module.parameters(recurse=False)):
        raise ValueError(
            f"a {type(module).__name__}'s weight is no parameter of its own: FSDP reduces "
            "gradients and frees weights with backward, not after it; use 1f1b, or replicas"
        )
    if getattr(module.fused, "keywords", {}).get("gradient_accumulation"):
        raise ValueError(
            "fuse(gradient_accumulation=True) adds weights' gradients into main_grad during "
            "backward, and split leaves them for later: fuse without it, or use 1f1b"
        )


def _linear(left: Left, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not (torch.is_grad_enabled() and x.requires_grad and weight.requires_grad):
        # Without a gradient to x, backward would not come here.
        return functional.linear(x, weight, bias)
    dtype = product_dtype(x)
    cast = None if bias is None else bias.to(dtype)
    return ops.apply(_Split, x.to(dtype), weight.detach().to(dtype), cast, (weight, left))


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, detached_FH: Tensor, bias_F: Tensor | None, place: tuple[Any, Left]
    ) -> Tensor:
        ctx.save_for_backward(x, detached_FH)
        ctx.place = place  # a tuple: autograd doesn't see the weight in it, and runs no hook
        return functional.linear(x, detached_FH, bias_F)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_FH = ctx.saved_tensors
        grad_NF = grad.reshape(-1, grad.shape[-1])
        weight, left = ctx.place
        left.setdefault(weight, []).append((grad_NF, x.reshape(-1, x.shape[-1])))
        grad_x = (grad_NF @ weight_FH).view(x.shape)
        return grad_x, None, grad_NF.sum(0) if ctx.needs_input_grad[2] else None, None
