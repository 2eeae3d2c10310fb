"""Master weights: the optimizer updates fp32 copies of half-precision parameters.

bf16 has 7 bits of mantissa, so an update of less than about 1/256 of a weight is lost by rounding,
and most updates are that small. The optimizer therefore updates an fp32 copy of each parameter with
the gradient that was accumulated in fp32 (`main_grad`). After its step the model's parameters are
the rounded copies. A checkpoint has the fp32 copies, so a run can continue in another dtype, or
under FSDP, whose shards are the masters (`MixedPrecision`).

Megatron does so in `Float16OptimizerWithFloat16Params` (megatron/core/optimizer/optimizer.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def master_of(parameter: nn.Parameter) -> nn.Parameter:
    """Return the tensor that an optimizer updates: the master if there is one, or `parameter`."""
    master: nn.Parameter = getattr(parameter, "master", parameter)
    return master


def make_masters(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Set an fp32 copy on each parameter that trains; return the tensors for an optimizer.

    A frozen parameter has no copy, since code may change it directly (the bias of experts).
    """
    parameters = list(parameters)
    for parameter in parameters:
        if parameter.requires_grad:
            copy = nn.Parameter(parameter.detach().float())
            parameter.master = copy  # type: ignore[attr-defined]
    return [master_of(parameter) for parameter in parameters]


def serve_masters(parameters: Iterable[nn.Parameter], optimizer: Optimizer) -> None:
    """Make every optimizer step read `main_grad` and round the masters into the model afterwards.

    Args:
        parameters: parameters with masters, whose gradients come from
            `StepGradients(main_grads=torch.float32)`.
        optimizer: the optimizer of the masters.
    """
    served = [parameter for parameter in parameters if parameter.requires_grad]

    def before(*_: object) -> None:
        for parameter in served:  # in each step, since buckets are assigned again after the first
            gradient: Tensor = parameter.main_grad  # type: ignore[attr-defined]
            master_of(parameter).grad = gradient

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(lambda *_: round_masters(served))


def round_masters(parameters: Iterable[nn.Parameter]) -> None:
    """Copy each master into its parameter, rounded; parameters without one don't change."""
    pairs = [(p, master_of(p)) for p in parameters if master_of(p) is not p]
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_([p for p, _ in pairs], [m for _, m in pairs])
