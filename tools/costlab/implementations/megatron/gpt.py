"""Megatron's layers and GPTModel made and loaded as a training script would; any module as a stage.

Its parallel state must stand (`megatron.megatron`). Weights go in whole and are cut by the marks
that Megatron leaves on its parameters. `MegatronStage` makes a pipeline stage of any module, and
`step` runs megatron-core's schedule over it.

Dimensions: S sequence, B batch, H hidden, V vocabulary; lower case where sharded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from costlab.implementations.megatron import (
    ColumnParallelLinear,
    DistributedDataParallel,
    DistributedDataParallelConfig,
    GPTModel,
    ModelType,
    RowParallelLinear,
    TransformerConfig,
    build_module,
    layer_spec,
    parallel_state,
    schedules,
)
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.layers import linear
from shardlab.layers.sharding import whole_parameters

# Megatron's words for ours.
OURS_TO_THEIRS = {
    "word_embedding": "embedding.word_embeddings",
    "position_embedding": "embedding.position_embeddings.weight",
    "final_norm": "decoder.final_layernorm",
    "head": "output_layer",
    "layers": "decoder.layers",
    ".norm1": ".input_layernorm",
    ".attention.qkv": ".self_attention.linear_qkv",
    ".attention.proj": ".self_attention.linear_proj",
    ".norm2": ".pre_mlp_layernorm",
    ".mlp.fc1": ".mlp.linear_fc1",
    ".mlp.fc2": ".mlp.linear_fc2",
}

NORMS = {"layer": "LayerNorm", "rms": "RMSNorm"}
POSITIONS = {"learned": "learned_absolute", "rope": "rope"}
REPLACEMENTS: Mapping[type[nn.Module], Callable[..., nn.Module]] = {
    linear.ColumnParallelLinear: partial(ColumnParallelLinear, gather_output=False),
    linear.RowParallelLinear: partial(RowParallelLinear, input_is_parallel=True),
}


def block_of(config: GPTConfig) -> dict[str, Any]:
    """What a TransformerConfig says of a block like ours."""
    return {
        "normalization": NORMS[config.norm], "layernorm_epsilon": config.norm_eps,
        "activation_func": silu if config.gated else gelu, "gated_linear_unit": config.gated,
        "ffn_hidden_size": config.ffn_width, "num_query_groups": config.groups,
        "add_bias_linear": config.bias,
    }  # fmt: skip


def transformer_layer(config: TransformerConfig) -> nn.Module:
    """One TransformerLayer of the local spec."""
    layer: nn.Module = build_module(layer_spec(), config=config)
    dtype: torch.dtype = config.params_dtype
    return layer.to(torch.get_default_device(), dtype)


def gpt(
    config: TransformerConfig, *, vocab: int, sequence: int, tied: bool, **settings: Any
) -> GPTModel:
    """This stage's part of Megatron's GPTModel: by default learned positions; logits sharded."""
    model = GPTModel(
        config,
        layer_spec(),
        vocab_size=vocab,
        max_sequence_length=sequence,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=tied,
        **settings,
    )
    # Positions and norms are made in torch's default dtype.
    return model.to(torch.get_default_device(), config.params_dtype)


def shard(parameter: Tensor, whole: Tensor) -> Tensor:
    """This rank's part of a whole weight, cut as Megatron marks the parameter."""
    if not getattr(parameter, "tensor_model_parallel", False):
        return whole
    size = parallel_state.get_tensor_model_parallel_world_size()
    rank: int = parallel_state.get_tensor_model_parallel_rank()
    dim: int = parameter.partition_dim  # type: ignore[attr-defined]
    return whole.chunk(size, dim)[rank]


def load(module: nn.Module, whole: Mapping[str, Tensor]) -> None:
    """Copy whole weights, named as by `named_parameters`, into this rank's shards.

    Megatron keeps a rank's gates before what they gate; whole weights have them in turns.
    """
    gated = getattr(getattr(module, "config", None), "gated_linear_unit", False)
    with torch.no_grad():
        for name, parameter in named_parameters(module):
            part = shard(parameter, whole[name])
            if gated and ".mlp.linear_fc1." in name:
                part = torch.cat([part[0::2], part[1::2]])
            parameter.copy_(part)


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by name, a layer counted over all pipeline stages (Megatron counts in each)."""
    decoder = getattr(module, "decoder", None)
    first = decoder.layers[0].layer_number - 1 if decoder is not None else 0
    for name, parameter in module.named_parameters():
        parts = name.split(".")
        if name.startswith("decoder.layers."):
            parts[2] = str(int(parts[2]) + first)
        yield ".".join(parts), parameter


def data_parallel(model: GPTModel) -> DistributedDataParallel:
    """The model in Megatron's DDP: its gradients go to `main_grad`, in the parameters' dtype."""
    options = DistributedDataParallelConfig(
        grad_reduce_in_fp32=False, overlap_grad_reduce=False, use_distributed_optimizer=False
    )
    return DistributedDataParallel(model.config, options, model)


def causal_mask(sequence: int) -> Tensor:
    """[1, 1, S, S], True where Megatron's attention may not look."""
    return torch.ones(sequence, sequence, dtype=torch.bool).triu(1)[None, None]


def theirs_by_ours(name: str) -> str:
    """What Megatron calls our parameter."""
    for ours, their_name in OURS_TO_THEIRS.items():
        if name.startswith(ours) or ours.startswith("."):
            name = name.replace(ours, their_name, 1)
    return name


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


def with_megatrons_linears(gpt: GPT, config: TransformerConfig) -> GPT:
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


Loss = Callable[[Tensor, Tensor], Tensor]


class MegatronStage(nn.Module):
    """What a schedule asks of a model: a config, and an input that is set from outside.

    Args:
        module: from the micro-batch (first piece) or [S, B, H] to what the next piece takes.
        config: Megatron's.
        vp_stage: which chunk of its stage it is, where there are several.
    """

    def __init__(self, module: nn.Module, config: Any, vp_stage: int | None = None) -> None:
        super().__init__()
        self.module, self.config, self.vp_stage = module, config, vp_stage
        self.model_type = ModelType.encoder_or_decoder
        self.received: Tensor | None = None

    def set_input_tensor(self, tensors: list[Tensor | None]) -> None:
        """Megatron hands over what the stage before sent."""
        self.received = tensors[0]

    def forward(self, x: Tensor) -> Tensor:
        """Run the module on what was received, or on the micro-batch."""
        out: Tensor = self.module(x if self.received is None else self.received)
        return out


def forward_step(loss: Loss) -> Callable[[Iterator[tuple[Tensor, Tensor]], MegatronStage], Any]:
    """Megatron's `forward_step_func`: the output, and how to get a loss from it."""

    def step(microbatches: Iterator[tuple[Tensor, Tensor]], stage: MegatronStage) -> Any:
        inputs, target = next(microbatches)

        def lose(output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            value = loss(output, target)
            return value, {"loss": value.detach().clone()}  # the schedule scales it in place

        return stage(inputs), lose

    return step


def step(
    pieces: Sequence[MegatronStage], data: Sequence[tuple[Tensor, Tensor]], loss: Loss,
    sequence: int, batch: int,
) -> list[Tensor]:  # fmt: skip
    """Run the schedule that Megatron's parallel state asks for, over this stage's pieces.

    Returns:
        each micro-batch's loss, on the last stage; elsewhere none.
    """
    run: Any = schedules.get_forward_backward_func()
    several = len(pieces) > 1
    losses = run(
        forward_step_func=forward_step(loss),
        data_iterator=[iter(data) for _ in pieces] if several else iter(data),
        model=list(pieces) if several else pieces[0],
        num_microbatches=len(data), seq_length=sequence, micro_batch_size=batch,
    )  # fmt: skip
    return [output["loss"] for output in losses]
