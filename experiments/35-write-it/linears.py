"""Yours to write: Megatron's two linear layers. `python grade.py linears` says what is missing.

N tokens, D features in, F out, t ranks; lower case is what a rank holds of it: f = F / t. Ranks
talk with `torch.distributed` over the default group, which is there already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Before you run it: how many bytes does each put into collectives, forward and backward? All
# numbers are fp64; x is 3 × 4, W is 6 × 4. The grader shows what it counted beside your numbers.
PREDICTED = {"F": (None, None), "G": (None, None), "column": (None, None), "row": (None, None)}


class F(torch.autograd.Function):
    """Where a tensor that is whole on every rank enters the cut part: Megatron's f.

    `F.apply(x)` is x. On the way back each rank brings the gradient of its own part only.
    """

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor) -> Tensor:
        """Return x, and send nothing."""
        raise NotImplementedError("F.forward: read _CopyToModelParallelRegion")

    @staticmethod
    def backward(ctx: Any, dx_ND: Tensor) -> Tensor:
        """Return the sum over ranks; `dx_ND` itself stays as it is, and may be non-contiguous."""
        raise NotImplementedError("F.backward: read _CopyToModelParallelRegion, and _reduce")


class G(torch.autograd.Function):
    """Where what each rank computed becomes whole again: Megatron's g, the mirror image of f."""

    @staticmethod
    def forward(ctx: Any, y_ND: Tensor) -> Tensor:
        """Return the sum over ranks; `y_ND` itself stays as it is, and may be non-contiguous."""
        raise NotImplementedError("G.forward: read _ReduceFromModelParallelRegion, and _reduce")

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor) -> Tensor:
        """Return the gradient of this rank's `y_ND`."""
        raise NotImplementedError("G.backward: read _ReduceFromModelParallelRegion")


def column(x_ND: Tensor, w_fD: Tensor, b_f: Tensor) -> Tensor:
    """Return this rank's outputs y_Nf, of x·Wᵀ + b.

    Args:
        x_ND: whole, the same on every rank.
        w_fD: this rank's rows of the weight.
        b_f: this rank's part of the bias.
    """
    raise NotImplementedError("column: read ColumnParallelLinear")


def row(x_Nf: Tensor, w_Df: Tensor, b_D: Tensor) -> Tensor:
    """Return y_ND = x·Wᵀ + b, whole on every rank.

    Args:
        x_Nf: this rank's part of the input.
        w_Df: this rank's columns of the weight.
        b_D: the whole bias, the same on every rank.
    """
    raise NotImplementedError("row: read RowParallelLinear")
