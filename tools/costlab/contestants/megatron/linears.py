"""Our GPT with megatron-core's linears in place of ours: what differs is the linears alone.

Megatron's parallel state must stand (`megatron.megatron`), over the ranks of the model's axis.
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn

from costlab.contestants.megatron import (
    ColumnParallelLinear,
    RowParallelLinear,
    TransformerConfig,
)
from costlab.contestants.megatron.gpt import load
from shardlab.gpt.model import GPT
from shardlab.layers import linear
from shardlab.layers.sharding import whole_parameters

THEIRS: Mapping[type[nn.Module], Callable[..., nn.Module]] = {
    linear.ColumnParallelLinear: partial(ColumnParallelLinear, gather_output=False),
    linear.RowParallelLinear: partial(RowParallelLinear, input_is_parallel=True),
}


class Linear(nn.Module):
    """One of Megatron's, which returns its output and a bias that may be left to add, as one.

    Shapes: as of the linear that it holds.
    """

    def __init__(self, theirs: nn.Module) -> None:
        """Hold it."""
        super().__init__()
        self.theirs = theirs

    def forward(self, x: Tensor) -> Tensor:
        """Return the output; its bias is added."""
        output: Tensor = self.theirs(x)[0]
        return output


def with_megatrons_linears(gpt: GPT, config: TransformerConfig) -> GPT:
    """Replace each linear of the blocks by Megatron's of the same weights; return the model."""
    whole = whole_parameters(gpt)
    for name, module in list(gpt.named_modules()):
        if type(module) not in THEIRS:
            continue
        outputs, inputs = whole[f"{name}.weight"].shape
        theirs = THEIRS[type(module)](
            inputs, outputs, config=config, init_method=nn.init.zeros_, bias=True,
            skip_bias_add=False,
        )  # fmt: skip
        load(theirs, {part: whole[f"{name}.{part}"] for part in ("weight", "bias")})
        parent, _, own = name.rpartition(".")
        setattr(gpt.get_submodule(parent), own, Linear(theirs))
    return gpt
