"""Gradients that are only partial under sequence parallelism, completed by one all-reduce.

A norm's weight, a row-parallel bias and the positions are whole on every rank. Under sequence
parallelism each rank uses them for its own rows of the sequence only, so its gradient lacks the
other ranks' rows. Autograd can't know that other rows exist, as they aren't in the local graph. The
layer that uses such a parameter therefore marks it, and the training loop calls `reduce` after
backward and before the optimizer.

Megatron marks `parameter.sequence_parallel` and finishes in
`_allreduce_non_tensor_model_parallel_grads` (megatron/core/distributed/finalize_model_grads.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.sharding import copies_of, sharding_of


def mark(parameter: nn.Parameter) -> nn.Parameter:
    """Mark `parameter` as one whose gradient needs `reduce`; return it."""
    parameter.partial_gradient = True  # type: ignore[attr-defined]
    return parameter


def is_marked(parameter: Tensor) -> bool:
    """Return whether the gradient of `parameter` is partial after backward."""
    return bool(getattr(parameter, "partial_gradient", False))


def reduce(
    parameters: nn.Module | Iterable[nn.Parameter], axis: Axis, *, attribute: str = "grad"
) -> None:
    """Sum the marked parameters' gradients over `axis`: one all-reduce for each dtype among them.

    Many short vectors would cost one latency each; concatenated they cost one in total. Call it
    once a step, because a second call would sum the sums.

    Args:
        parameters: a module, or its parameters; unmarked ones are ignored.
        axis: the tensor axis.
        attribute: the parameter's attribute that holds the gradient: "grad" or "main_grad".

    Raises:
        ValueError: a marked parameter has no gradient; every rank must have the same gradients.

    """
    if isinstance(parameters, nn.Module):
        parameters = parameters.parameters()
    if axis.size == 1:
        return
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for parameter in parameters:
        if not is_marked(parameter) or not parameter.requires_grad:
            continue
        gradient = getattr(parameter, attribute, None)
        if gradient is None:
            raise ValueError(
                f"a parameter of shape {tuple(parameter.shape)} is marked partial and has no "
                f".{attribute}: run backward first, or freeze it (requires_grad=False) on all ranks"
            )
        by_dtype.setdefault(gradient.dtype, []).append(gradient)
    with torch.no_grad():
        for gradients in by_dtype.values():
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            axis.all_reduce(flat, out=flat)
            pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
            for gradient, piece in zip(gradients, pieces, strict=True):
                gradient.copy_(piece.view(gradient.shape))


@torch.no_grad()
def refuse_unmarked(
    named_parameters: Sequence[tuple[str, nn.Parameter]], axis: Axis, *, attribute: str = "grad"
) -> None:
    """Refuse gradients that should be the same on every rank of `axis` and are not.

    A parameter that isn't cut over the tensor axis has the same gradient on all its ranks once
    `reduce` has summed the marked ones. If a gradient differs, some rank's is only a part. The
    ranks compare each gradient's sum and norm, in fp64, by one all-gather.

    Args:
        named_parameters: the parameters; those that are cut over the axis, or are experts, are
            ignored.
        axis: the tensor axis.
        attribute: the parameter's attribute that holds the gradient.

    Raises:
        ValueError: on every rank; names the parameters whose gradients differ.
    """
    whole = [
        (name, gradient)
        for name, parameter in named_parameters
        if sharding_of(parameter) is None and copies_of(parameter) is None
        if (gradient := getattr(parameter, attribute, None)) is not None and gradient.numel()
    ]
    if not whole:
        return
    rows = torch.stack([torch.stack([g.double().sum(), g.double().norm()]) for _, g in whole]).cpu()
    by_rank = rows.new_empty(axis.size, rows.numel())
    axis.gather_small(rows.flatten(), by_rank.view(-1))
    by_rank = by_rank.view(axis.size, *rows.shape)
    spread = (by_rank - by_rank[:1]).abs().amax(0)  # [parameters, (sum, norm)]
    largest = by_rank[..., 1].amax(0)
    differing = []
    for (name, gradient), difference, norm in zip(whole, spread, largest, strict=True):
        rounding = min(0.05, 1e4 * torch.finfo(gradient.dtype).eps) * norm
        if difference[1] > rounding or difference[0] > rounding * gradient.numel() ** 0.5:
            differing.append(name)
    if differing:
        raise ValueError(
            f"{len(differing)} parameters that no rank cuts have other gradients on other ranks of "
            f"the {axis.name} axis: {', '.join(differing[:6])}{', …' if differing[6:] else ''}. If "
            "each rank has seen a part of the rows (sequence parallelism) or of the features (an "
            "input of a column-parallel linear), mark the parameter: partial_gradients.mark(p)"
        )
