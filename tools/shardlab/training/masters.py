"""Master weights: the optimizer steps on fp32 copies of half-precision parameters.

bf16 has 7 bits of mantissa: a step of less than about 1/256 of a weight is rounded away, and most
are. So the optimizer keeps each parameter in fp32 and reads the gradient that was gathered in fp32
(`main_grad`); after its step the model gets the copies, rounded. A checkpoint holds the copies and
not the rounding, so that a run may go on in another dtype, and under FSDP, where none of this is
needed: its shards are the masters (`MixedPrecision`).

Megatron does so in `Float16OptimizerWithFloat16Params` (megatron/core/optimizer/optimizer.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def master_of(parameter: nn.Parameter) -> nn.Parameter:
    """Return what an optimizer steps on: the parameter's master, or the parameter itself."""
    master: nn.Parameter = getattr(parameter, "master", parameter)
    return master


def make_masters(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Note an fp32 copy on each parameter that trains; return what an optimizer steps on.

    A frozen one stays its own: whoever changes it (an expert's bias, by its load) changes no copy.
    """
    parameters = list(parameters)
    for parameter in parameters:
        if parameter.requires_grad:
            copy = nn.Parameter(parameter.detach().float())
            parameter.master = copy  # type: ignore[attr-defined]
    return [master_of(parameter) for parameter in parameters]


def serve_masters(parameters: Iterable[nn.Parameter], optimizer: Optimizer) -> None:
    """Have every step of the optimizer read `main_grad`, and the model follow.

    Args:
        parameters: those that have masters; their gradients come by
            `StepGradients(main_grads=torch.float32)`.
        optimizer: of the masters.
    """
    served = [parameter for parameter in parameters if parameter.requires_grad]

    def before(*_: object) -> None:
        for parameter in served:  # anew in each step: buckets are laid out anew after the first
            gradient: Tensor = parameter.main_grad  # type: ignore[attr-defined]
            master_of(parameter).grad = gradient

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(lambda *_: round_masters(served))


def round_masters(parameters: Iterable[nn.Parameter]) -> None:
    """Make each parameter its master, rounded; those without one are left alone."""
    pairs = [(p, master_of(p)) for p in parameters if master_of(p) is not p]
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_([p for p, _ in pairs], [m for _, m in pairs])
