"""Linear layers cut over the tensor axis: Y = X Wᵀ + b with W [F, H] stored as torch stores it.

A column-parallel layer cuts W along the output and needs a whole input; a row-parallel one cuts it
along the input and returns a whole output. One after the other they need one all-reduce forward,
that of row's `reduce_from` (g), and one backward, that of column's `copy_to` (f); under sequence
parallelism, where activations outside the pair are cut along S, a gather and a reduce-scatter each.
matmul.py has the same as one autograd node each, for speed. `ColumnParallelLinear` and
`RowParallelLinear` in megatron/core/tensor_parallel/layers.py; those always return a pair (Y, bias
or None), these Y.

Dimensions: S sequence, B batch, H input features, F output features; lower case: this rank's share.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

from shardlab.comm import Axis
from shardlab.grid.rules import check_divides
from shardlab.layers import ops, partial_gradients
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.sharding import CopyableModule

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # torch's, or deferred_weight_grad.py's
# matmul.py's form of a whole forward: x, weight, bias, axis, sequence parallel or not.
Fused = Callable[[Tensor, Tensor, Tensor | None, Axis, bool], Tensor]


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that `x` is multiplied in: its own, or autocast's, as in torch's linear."""
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type):
        return x.dtype
    return torch.get_autocast_dtype(x.device.type)


class ColumnParallelLinear(CopyableModule):
    """Y = X Wᵀ + b with W and b cut along the output.

    Args:
        in_features: H.
        out_features: F, a multiple of the axis's size.
        axis: the tensor axis.
        bias: whether to have one.
        gather_output: return Y whole on every rank, by an all-gather, instead of this rank's part.
        skip_bias_add: leave the bias out; whoever calls adds `layer.bias`, fused with what follows.
        sequence_parallel: x arrives cut along S.
        name: of the layer in the whole model; weights are drawn by name.
        init: how parameters start.

    Shapes: x [S, B, H] (any leading dims; [s, B, H] under sequence parallel) -> [S, B, f], or
    [S, B, F] gathered; weight [f, H]; bias [f].

    Raises:
        ValueError: the axis does not divide F.

    """

    def __init__(
        self, in_features: int, out_features: int, *, axis: Axis, bias: bool = True,
        gather_output: bool = False, skip_bias_add: bool = False, sequence_parallel: bool = False,
        name: str = "column", init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Draw the weights."""
        super().__init__()
        check_divides(axis.name, axis.size, out_features, f"output features of {name}")
        self.linear: Linear = linear
        self.fused: Fused | None = None
        self.axis = axis
        self.gather_output = gather_output
        self.skip_bias_add = skip_bias_add
        self.sequence_parallel = sequence_parallel
        self.weight = init.sharded(f"{name}.weight", (out_features, in_features), axis=axis, dim=0)
        self.bias = init.constant(0.0, out_features, axis=axis) if bias else None

    def forward(self, x_SBH: Tensor) -> Tensor:
        """Return Y_SBf, or Y_SBF gathered."""
        bias_f = None if self.skip_bias_add else self.bias
        if self.fused:
            y_SBf = self.fused(x_SBH, self.weight, bias_f, self.axis, self.sequence_parallel)
        else:
            cross = ops.all_gather if self.sequence_parallel else ops.copy_to  # f
            y_SBf = self.linear(cross(x_SBH, self.axis), self.weight, bias_f)
        return ops.gather_from(y_SBf, self.axis, -1) if self.gather_output else y_SBf


class RowParallelLinear(CopyableModule):
    """Y = X Wᵀ + b with W cut along the input, b whole and added once, after the reduction.

    Args:
        in_features: H, a multiple of the axis's size.
        out_features: F.
        axis: the tensor axis.
        bias: whether to have one.
        input_is_parallel: x is this rank's part already (a column-parallel output); otherwise
            x arrives whole and is sliced.
        skip_bias_add: leave the bias out; whoever calls adds `layer.bias`.
        sequence_parallel: Y leaves cut along S; the bias's gradient is then partial.
        name: of the layer in the whole model.
        init: how parameters start.

    Shapes: x [S, B, h] (or [S, B, H] whole) -> [S, B, F], or [s, B, F] under sequence parallel;
    weight [F, h]; bias [F].

    Raises:
        ValueError: the axis does not divide H, or sequence parallelism with a whole input.

    """

    def __init__(
        self, in_features: int, out_features: int, *, axis: Axis, bias: bool = True,
        input_is_parallel: bool = True, skip_bias_add: bool = False,
        sequence_parallel: bool = False, name: str = "row", init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Draw the weights."""
        super().__init__()
        check_divides(axis.name, axis.size, in_features, f"input features of {name}")
        if sequence_parallel and not input_is_parallel:
            raise ValueError(
                f"{name}: sequence parallelism needs input_is_parallel=True: between the column "
                "and the row layer activations are cut along features, not along the sequence"
            )
        self.linear: Linear = linear
        self.fused: Fused | None = None
        self.axis = axis
        self.input_is_parallel = input_is_parallel
        self.skip_bias_add = skip_bias_add
        self.sequence_parallel = sequence_parallel
        self.weight = init.sharded(f"{name}.weight", (out_features, in_features), axis=axis, dim=1)
        self.bias = init.constant(0.0, out_features) if bias else None
        if self.bias is not None and sequence_parallel:
            partial_gradients.mark(self.bias)

    def forward(self, x_SBh: Tensor) -> Tensor:
        """Return Y_SBF, or Y_sBF under sequence parallelism."""
        if not self.input_is_parallel:
            x_SBh = ops.scatter_to(x_SBh, self.axis, -1)
        bias_F = None if self.skip_bias_add else self.bias
        if self.fused:
            return self.fused(x_SBh, self.weight, bias_F, self.axis, self.sequence_parallel)
        if self.axis.size == 1:  # torch adds the bias in the product
            return self.linear(x_SBh, self.weight, bias_F)
        cross = ops.reduce_scatter if self.sequence_parallel else ops.reduce_from  # g
        y_SBF = cross(self.linear(x_SBh, self.weight, None), self.axis)
        return y_SBF if bias_F is None else y_SBF + bias_F.to(y_SBF.dtype)
