"""The norm of all gradients of a model that many ranks hold, each parameter counted once.

What a rank holds falls in three sorts. A slice of a sharded parameter: every rank's slice counts. A
replicated parameter (a norm, a row-parallel bias): all tensor ranks hold the same gradient, so the
first one counts it. A copy of a parameter that another pipeline stage counts (the tied embedding on
the last stage): it does not. Squares then add up over tensor × pipeline, in one all-reduce of eight
bytes. Data-parallel ranks hold the same gradients, reach the same norm, and need not speak.

The gradients must be finished: reduced over the data axis, partial ones and tied ones summed.

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

SMALLEST = 1e-6  # added to the norm before dividing, as PyTorch and Megatron do


def counted(
    parameters: Iterable[nn.Parameter], tensor: Axis, *, copies: Iterable[nn.Parameter] = ()
) -> list[nn.Parameter]:
    """Return the parameters that this rank counts; over the model's ranks each is counted once.

    Args:
        parameters: those of this rank; one that comes twice is counted once.
        tensor: the tensor axis; a parameter is sharded over it or replicated.
        copies: those that another pipeline stage counts.
    """
    mine = {id(parameter): parameter for parameter in parameters}
    for parameter in copies:
        mine.pop(id(parameter), None)
    return [p for p in mine.values() if tensor.rank == 0 or sharding_of(p) is not None]


def gradient_norm(
    parameters: Iterable[nn.Parameter], axis: Axis, *, tensor: Axis,
    copies: Iterable[nn.Parameter] = (), attribute: str = "grad",
) -> Tensor:  # fmt: skip
    """Return the norm of all gradients of a model that the ranks of `axis` hold between them.

    Half-precision gradients are measured in fp32, and squares added in fp64. Every rank of the axis
    calls this, also one that counts nothing. Returns fp64 without dimensions.

    Args:
        parameters: this rank's; those without a gradient are passed over.
        axis: `grid.axis("tensor", "pipeline")`.
        tensor: the tensor axis, one of those that make up `axis`.
        copies: parameters that another pipeline stage counts (`counted`).
        attribute: where gradients stand: "grad" or "main_grad".
    """
    parameters = list(parameters)
    gradients = _gradients(counted(parameters, tensor, copies=copies), attribute)
    device = parameters[0].device if parameters else None
    norms = _norms(gradients) if gradients else torch.zeros(1, dtype=torch.float64, device=device)
    return axis.all_reduce(norms.square().sum().reshape(1))[0].sqrt()


def clip(
    parameters: Iterable[nn.Parameter], norm: Tensor, max_norm: float, *, attribute: str = "grad"
) -> None:
    """Scale all gradients of this rank, counted here or not, so that their norm is `max_norm`.

    Gradients whose norm is smaller stay as they are. In place: they are this rank's own.

    Raises:
        ValueError: `max_norm` is not positive.
    """
    if max_norm <= 0:
        raise ValueError(f"max_norm is {max_norm}; expected a positive number")
    gradients = _gradients(parameters, attribute)
    factor = (max_norm / (norm + SMALLEST)).clamp(max=1.0)
    # Asking for the number costs nothing on the CPU; on a GPU it would wait for the whole backward.
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
