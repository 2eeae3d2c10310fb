"""Backward in two steps: the inputs' gradients at once, the weights' gradients later.

    dgrad     dX_SBH = dY_SBF W_FH     in backward, with all communication over the tensor axis
    wgrad     dW_FH = dY_SBFᵀ X_SBH    in `compute_weight_grads`; local, no other stage waits for it

The previous stage waits for dX only. A zero-bubble schedule therefore computes dW later, when the
stage would otherwise idle (Qi et al. 2023).

The weight enters the graph detached. Backward then stores the factors dY and X instead of
multiplying them, and no hook runs for the weight. `compute_weight_grads` gives the product to
autograd as the gradient of the weight itself, so the gradient accumulates and its hooks run as
after any backward. Data parallelism reduces it at that time. The gradients of biases, norms and
embeddings are cheap and stay in backward.

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

# The factors dY_NF and X_NH of each weight's gradient; one pair for each use of the weight.
DeferredGrads = dict[nn.Parameter, list[tuple[Tensor, Tensor]]]


@contextmanager
def defer_weight_grads(modules: Sequence[nn.Module]) -> Iterator[DeferredGrads]:
    """Context manager: defer the weights' gradients of linears, heads and experts in `modules`.

    A weight that two modules share (a tied head and its embedding) isn't deferred: the embedding's
    half of its gradient arrives in backward, and both halves must arrive together.

    Yields:
        the deferred gradients of each backward; empty it after each backward.

    Raises:
        ValueError: a weight is no parameter of its module (under FSDP), or its gradient is added
            to `main_grad` (`fuse(gradient_accumulation=True)`).
    """
    deferred: DeferredGrads = {}
    before: list[tuple[Any, ...]] = []
    holders = [
        id(p) for m in modules for module in m.modules() for p in module.parameters(recurse=False)
    ]
    linears: list[Any] = [m for chunk in modules for m in chunk.modules() if hasattr(m, "fused")]
    try:
        for module in linears:
            _check_supported(module)
            if all(holders.count(id(p)) == 1 for p in module.parameters(recurse=False)):
                before.append((module, module.linear, module.fused))
                module.linear, module.fused = partial(_linear, deferred), None
        yield deferred
    finally:
        for module, *were in before:
            module.linear, module.fused = were


def compute_weight_grads(deferred: DeferredGrads) -> None:
    """Compute the deferred gradients of a backward, and accumulate them as that backward would."""
    for weight, factors in deferred.items():
        grad_FH = reduce(torch.add, (grad_NF.t() @ x_NH for grad_NF, x_NH in factors))
        torch.autograd.backward(weight, grad_FH.to(weight.dtype))


def _check_supported(module: nn.Module) -> None:
    if not any(p.dim() > 1 for p in module.parameters(recurse=False)):
        raise ValueError(
            f"a {type(module).__name__}'s weight is no parameter of its own: FSDP reduces "
            "gradients and frees weights with backward, not after it; choose --schedule 1f1b, or "
            "replicas"
        )
    if getattr(module.fused, "keywords", {}).get("gradient_accumulation"):
        raise ValueError(
            "fuse(gradient_accumulation=True) adds weights' gradients into main_grad during "
            "backward, and a zero-bubble schedule defers them: fuse without it, or choose "
            "--schedule 1f1b"
        )


def _linear(deferred: DeferredGrads, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not (torch.is_grad_enabled() and x.requires_grad and weight.requires_grad):
        # If x needs no gradient, autograd would not call this backward.
        return functional.linear(x, weight, bias)
    dtype = product_dtype(x)
    cast = None if bias is None else bias.to(dtype)
    return ops.apply(
        _DeferredLinear, x.to(dtype), weight.detach().to(dtype), cast, (weight, deferred)
    )


class _DeferredLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        detached_FH: Tensor,
        bias_F: Tensor | None,
        place: tuple[Any, DeferredGrads],
    ) -> Tensor:
        ctx.save_for_backward(x, detached_FH)
        ctx.place = place  # in a tuple, where autograd doesn't see the weight and runs no hook
        return functional.linear(x, detached_FH, bias_F)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_FH = ctx.saved_tensors
        grad_NF = grad.reshape(-1, grad.shape[-1])
        weight, deferred = ctx.place
        deferred.setdefault(weight, []).append((grad_NF, x.reshape(-1, x.shape[-1])))
        grad_x = (grad_NF @ weight_FH).view(x.shape)
        return grad_x, None, grad_NF.sum(0) if ctx.needs_input_grad[2] else None, None
