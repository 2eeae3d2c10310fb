"""Layer norm and RMS norm: whole on every rank; gradients partial under sequence parallelism.

Without sequence parallelism every rank normalises the same rows, so its weights' gradients are
whole. With it each normalises its own rows of the sequence: what it computes is right, what its
weights learn is a part (partial_gradients.py finishes it).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm

from shardlab.layers import partial_gradients
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.sharding import CopyableModule


class LayerNorm(CopyableModule):
    """(x − mean) / √(variance + eps) · weight + bias, over the last dim.

    Args:
        hidden: H.
        sequence_parallel: x is cut along S; weight and bias are then marked as partial.
        eps: Megatron's `layernorm_epsilon`, and torch's.
        init: dtype and device of the parameters; weight starts at one, bias at zero.

    Shapes: x [S, B, H] or [s, B, H] -> the same.

    """

    def __init__(
        self, hidden: int, *, sequence_parallel: bool = False, eps: float = 1e-5,
        init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Make weight and bias."""
        super().__init__()
        self.eps = eps
        self.weight = init.constant(1.0, hidden)
        self.bias = init.constant(0.0, hidden)
        if sequence_parallel:
            partial_gradients.mark(self.weight)
            partial_gradients.mark(self.bias)

    def forward(self, x_sBH: Tensor) -> Tensor:
        """Return the normalised rows."""
        return layer_norm(x_sBH, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(CopyableModule):
    """x / √(mean of x² + eps) · weight, over the last dim; arguments and shapes as LayerNorm's."""

    def __init__(
        self, hidden: int, *, sequence_parallel: bool = False, eps: float = 1e-5,
        init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Make the weight."""
        super().__init__()
        self.eps = eps
        self.weight = init.constant(1.0, hidden)
        if sequence_parallel:
            partial_gradients.mark(self.weight)

    def forward(self, x_sBH: Tensor) -> Tensor:
        """Return the normalised rows."""
        return rms_norm(x_sBH, self.weight.shape, self.weight, self.eps)


NORMS: dict[str, type[LayerNorm | RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
