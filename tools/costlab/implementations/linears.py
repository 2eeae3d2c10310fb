"""Our GPT beside the same with megatron-core's linears: what differs is the linears alone."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn

from costlab.implementations import megatron as mcore
from costlab.implementations.megatron.gpt import load
from shardlab.gpt.model import GPT
from shardlab.layers import linear
from shardlab.layers.sharding import whole_parameters

REPLACEMENTS: Mapping[type[nn.Module], Callable[..., nn.Module]] = {
    linear.ColumnParallelLinear: partial(mcore.ColumnParallelLinear, gather_output=False),
    linear.RowParallelLinear: partial(mcore.RowParallelLinear, input_is_parallel=True),
}


class Linear(nn.Module):
    """A linear layer of Megatron, which returns (output, bias), as a module that returns a tensor.

    Shapes: those of the layer that it wraps.
    """

    def __init__(self, linear: nn.Module) -> None:
        """Wrap `linear`, which must add its own bias."""
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        """Return the output; its bias is added."""
        output: Tensor = self.linear(x)[0]
        return output


def with_megatrons_linears(gpt: GPT, config: mcore.TransformerConfig) -> GPT:
    """Replace each linear of the blocks by Megatron's of the same weights; return the model."""
    whole = whole_parameters(gpt)
    for name, module in list(gpt.named_modules()):
        if type(module) not in REPLACEMENTS:
            continue
        outputs, inputs = whole[f"{name}.weight"].shape
        replacement = REPLACEMENTS[type(module)](
            inputs, outputs, config=config, init_method=nn.init.zeros_, bias=True,
            skip_bias_add=False,
        )  # fmt: skip
        load(replacement, {part: whole[f"{name}.{part}"] for part in ("weight", "bias")})
        parent, _, child_name = name.rpartition(".")
        setattr(gpt.get_submodule(parent), child_name, Linear(replacement))
    return gpt
