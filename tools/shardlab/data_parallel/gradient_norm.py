"""The norm of all gradients of a model that is sharded over ranks, each parameter counted once.

A rank holds three kinds of parameters. A slice of a sharded parameter counts on every rank. A
replicated parameter (a norm, a row-parallel bias) has the same gradient on all tensor ranks, so
only the first tensor rank counts it. A copy of a parameter that another pipeline stage counts (the
tied embedding on the last stage) isn't counted. The squares are then summed over tensor × pipeline,
in one all-reduce of eight bytes. Data-parallel ranks have the same gradients and compute the same
norm without communication.

The gradients must be complete: reduced over the data axis, and summed if partial or tied.

Megatron does so in `get_grad_norm_fp32` and `clip_grad_by_total_norm_fp32`
(megatron/core/optimizer/clip_grads.py), with `param_is_not_tensor_parallel_duplicate` and
`param_is_not_shared` for the choice; PyTorch in `torch.nn.utils.clip_grad_norm_`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.sharding import sharding_of

EPSILON = 1e-6  # added to the norm before the division, as in PyTorch and Megatron


def select_counted(
    parameters: Iterable[nn.Parameter], tensor: Axis, *, copies: Iterable[nn.Parameter] = ()
) -> list[nn.Parameter]:
    """Return the parameters that this rank counts; each is counted on one of the model's ranks.

    Args:
        parameters: this rank's parameters; one that is listed twice is counted once.
        tensor: the tensor axis; a parameter is sharded over it or replicated.
        copies: parameters that another pipeline stage counts.
    """
    unique = {id(parameter): parameter for parameter in parameters}
    for parameter in copies:
        unique.pop(id(parameter), None)
    return [p for p in unique.values() if tensor.rank == 0 or sharding_of(p) is not None]


def gradient_norm(
    parameters: Iterable[nn.Parameter], axis: Axis, *, tensor: Axis,
    copies: Iterable[nn.Parameter] = (), attribute: str = "grad",
) -> Tensor:  # fmt: skip
    """Return the norm of all gradients of a model, whose parts are on the ranks of `axis`.

    Norms of half-precision gradients are computed in fp32, and squares are added in fp64. Every
    rank of the axis must call this, also one that counts no parameter.

    Args:
        parameters: this rank's parameters; those without a gradient are ignored.
        axis: `grid.axis("tensor", "pipeline")`.
        tensor: the tensor axis, a part of `axis`.
        copies: parameters that another pipeline stage counts (`select_counted`).
        attribute: the parameters' attribute that has the gradient: "grad" or "main_grad".

    Returns:
        the norm, fp64 [].
    """
    parameters = list(parameters)
    gradients = _gradients(select_counted(parameters, tensor, copies=copies), attribute)
    device = parameters[0].device if parameters else None
    norms = _norms(gradients) if gradients else torch.zeros(1, dtype=torch.float64, device=device)
    return axis.all_reduce(norms.square().sum().reshape(1))[0].sqrt()


def clip(
    parameters: Iterable[nn.Parameter], norm: Tensor, max_norm: float, *, attribute: str = "grad"
) -> None:
    """Scale all gradients of this rank, counted here or not, so that the norm is `max_norm`.

    If the norm is smaller, the gradients don't change. They are scaled in place.

    Raises:
        ValueError: `max_norm` is not positive.
    """
    if max_norm <= 0:
        raise ValueError(f"max_norm is {max_norm}; expected a positive number")
    gradients = _gradients(parameters, attribute)
    factor = (max_norm / (norm + EPSILON)).clamp(max=1.0)
    # Reading the number is free on the CPU; on a GPU it would wait for the whole backward.
    if not gradients or (factor.device.type == "cpu" and bool(factor == 1)):
        return
    torch._foreach_mul_(gradients, factor)


def _gradients(parameters: Iterable[nn.Parameter], attribute: str) -> list[Tensor]:
    unique = {id(p): getattr(p, attribute, None) for p in parameters}
    return [g.detach() for g in unique.values() if g is not None and g.numel()]


def _norms(gradients: list[Tensor]) -> Tensor:
    """Return each gradient's norm in fp64, [gradients]."""
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for gradient in gradients:
        by_dtype.setdefault(gradient.dtype, []).append(gradient)
    norms: list[Tensor] = []
    for dtype, alike in by_dtype.items():
        wide = torch.float32 if dtype.itemsize < 4 else dtype
        norms += torch._foreach_norm(alike, 2, dtype=wide)
    return torch.stack([norm.to(torch.float64) for norm in norms])
