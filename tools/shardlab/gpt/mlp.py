"""The feed-forward pair: column-parallel, GELU or SwiGLU, row-parallel.

GELU acts on each feature by itself, so it can stand between the two on features that are cut. Cut
the other way round, row then column, the first output would be a sum still to be made, and
GELU(a + b) is not GELU(a) + GELU(b): one more all-reduce.

SwiGLU has two linears before fc2, silu(X Wᵍᵀ) and X Wᵘᵀ, and multiplies them feature by feature.
Here they are one column-parallel linear whose rows lie pair by pair: a row of the gate, then the
row that it multiplies. An equal cut of the rows is then a cut by features, on any number of ranks,
and X crosses the axis once. Megatron puts each rank's gate before each rank's rows, so that its
weight depends on the number of ranks.

The exact GELU (erf) as Megatron's default `activation_func`; its fused `bias_gelu` is the tanh
approximation, another function.

Dimensions: S sequence, B batch, H hidden, F feed-forward; lower case: this rank's share.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from shardlab.comm import Axis
from shardlab.gpt.config import GPTConfig
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear


class MLP(nn.Module):
    """Y = GELU(X W₁ᵀ + b₁) W₂ᵀ + b₂, or SwiGLU in place of GELU.

    Args:
        config: of the model.
        name: of this layer in the whole model.
        axis: the tensor axis; it divides F.
        sequence_parallel: x arrives and leaves cut along S.
        init: how parameters start.

    Shapes: x [S, B, H] -> [S, B, H], or [s, B, H] both; fc1.weight [f, H], or gated [2f, H];
    fc2.weight [H, f].

    Raises:
        ValueError: the axis does not divide F.

    """

    def __init__(
        self, config: GPTConfig, name: str, *, axis: Axis, sequence_parallel: bool = False,
        init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Make the two linears."""
        super().__init__()
        self.gated = config.gated
        self.fc1 = ColumnParallelLinear(
            config.hidden, config.ffn_width * (1 + config.gated), axis=axis, bias=config.bias,
            sequence_parallel=sequence_parallel,
            name=f"{name}.fc1", init=init,
        )  # fmt: skip
        self.fc2 = RowParallelLinear(
            config.ffn_width, config.hidden, axis=axis, bias=config.bias,
            sequence_parallel=sequence_parallel,
            name=f"{name}.fc2", init=init.scaled_for_depth(config.layers),
        )  # fmt: skip

    def forward(self, x_sBH: Tensor) -> Tensor:
        """Return Y."""
        y_sBH: Tensor = self.fc2(self.activate(self.fc1(x_sBH)))
        return y_sBH

    def activate(self, x_SBf: Tensor) -> Tensor:
        """Return GELU of fc1's output, or silu of its gates times what they gate."""
        if not self.gated:
            return gelu(x_SBf)
        # One copy apart: operations on every other feature would each take twice as long.
        pair_2SBf: Tensor = (
            x_SBf.view(*x_SBf.shape[:-1], x_SBf.shape[-1] // 2, 2).movedim(-1, 0).contiguous()
        )
        return silu(pair_2SBf[0]) * pair_2SBf[1]
