"""A transformer block: norm, attention, add; norm, feed-forward, add.

Over the tensor axis forward crosses twice (after the projection, after fc2) and backward twice
(before qkv's input, before fc1's): an all-reduce each. Under sequence parallelism each becomes a
reduce-scatter and an all-gather, and backward has two all-gathers more, for wgrad.

Dimensions: S sequence, B batch, H hidden; s: this rank's share under sequence parallelism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.gpt.attention import Attention
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.mlp import MLP
from shardlab.layers.dropout import Dropout
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.norm import NORMS

if TYPE_CHECKING:
    from shardlab.context.parallel import ContextParallel
    from shardlab.experts.layer import ExpertAxes


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): pre-norm, as GPT-2 and Megatron.

    Args:
        config: of the model.
        name: of this block in the whole model.
        axis: the tensor axis.
        sequence_parallel: x arrives and leaves cut along S.
        dropout_seed: of the run.
        init: how parameters start.
        experts: the axes of the experts, where the config has any; None for one rank.
        context: as Attention's.

    Shapes: x [S, B, H] -> [S, B, H], or [s, B, H] both.

    """

    def __init__(
        self, config: GPTConfig, name: str, *, axis: Axis, sequence_parallel: bool = False,
        dropout_seed: int = 0, init: Init = DEFAULT, experts: ExpertAxes | None = None,
        context: ContextParallel | None = None,
    ) -> None:  # fmt: skip
        """Make the parts."""
        super().__init__()
        norm: dict[str, Any] = {"eps": config.norm_eps, "init": init}
        norm["sequence_parallel"] = sequence_parallel
        self.norm1 = NORMS[config.norm](config.hidden, **norm)
        self.attention = Attention(
            config, f"{name}.attention", axis=axis, sequence_parallel=sequence_parallel,
            dropout_seed=dropout_seed, init=init, context=context,
        )  # fmt: skip
        self.norm2 = NORMS[config.norm](config.hidden, **norm)
        settings: dict[str, Any] = {
            "axis": axis,
            "sequence_parallel": sequence_parallel,
            "init": init,
        }
        self.has_experts = config.experts is not None
        if config.experts:
            from shardlab.experts.layer import ExpertLayer

            settings |= {"axes": experts, "context": context and context.axis}
            self.mlp: nn.Module = ExpertLayer(config, f"{name}.mlp", **settings)
        else:
            self.mlp = MLP(config, f"{name}.mlp", **settings)
        self.dropout1, self.dropout2 = (
            Dropout(
                config.dropout, axis=axis, sharded=sequence_parallel, name=f"{name}.dropout{i}",
                seed=dropout_seed,
            )
            for i in (1, 2)
        )  # fmt: skip

    def forward(
        self, x_sBH: Tensor, documents_BS: Tensor | None = None, padding_sB: Tensor | None = None
    ) -> Tensor:
        """Return the block's output; experts see no token where `padding_sB` is true."""
        padding = (padding_sB,) if self.has_experts and padding_sB is not None else ()
        x_sBH = x_sBH + self.dropout1(self.attention(self.norm1(x_sBH), documents_BS))
        x_sBH = x_sBH + self.dropout2(self.mlp(self.norm2(x_sBH), *padding))
        return x_sBH  # noqa: RET504  (two lines alike)
