"""Tensor parallelism meets the loss, the norms, the gradient norm and a strided tensor."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from megatron_on_cpu import norm_of
from room import difference, random_like, random_tokens, room
from torch import nn

from costlab.implementations.megatron import (
    Norm,
    config,
    finalize_model_grads,
    mappings,
    megatron,
    parallel_state,
    transformer_block,
    vocab_parallel_cross_entropy,
)
from costlab.implementations.megatron import gpt as megatron_gpt
from shardlab.comm import World
from shardlab.layers import ops

with patch.object(torch, "compile", lambda function: function):
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType

HIDDEN, SEQUENCE, VOCAB = 8, 8, 8


@room("strided-reduce", ranks=2)
def strided_reduce(world: World) -> dict[str, float]:
    """The relative error of what f's backward hands on, where the gradient comes in transposed."""
    weights = [random_like(3, 2, seed=rank) for rank in range(world.size)]
    right, errors = sum(weights).t(), {}
    with megatron(tensor=world.size):
        group = parallel_state.get_tensor_model_parallel_group()
        for implementation, copy in (
            ("megatron", partial(mappings.copy_to_tensor_model_parallel_region, group=group)),
            ("ours", lambda x: ops.copy_to(x, world.whole)),
        ):
            x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
            (copy(x).t() * weights[world.rank]).sum().backward()
            assert x.grad is not None
            errors[implementation] = difference(x.grad, right)
    return errors


@room("label-smoothing", ranks=2)
def label_smoothing(world: World) -> dict[str, float]:
    """One token's smoothed loss, as each rank has it, and of the whole vocabulary."""
    logits, target = torch.tensor([[1.0, 3.0, 2.0, 0.0]]), torch.tensor([2])
    smoothing = 0.1 * 4 / 3  # Megatron spreads 0.1 over the other words, torch over all
    right = nn.functional.cross_entropy(logits, target, label_smoothing=smoothing)
    with megatron(tensor=world.size):
        shard = logits.chunk(world.size, dim=-1)[world.rank].clone()
        loss = vocab_parallel_cross_entropy(shard[None], target[None], 0.1).item()
    return {f"rank {world.rank}": loss, "right": right.item()}


@room("gathered-logits", ranks=2)
def gathered_logits(world: World) -> dict[str, float]:
    """A GPT's loss with `runtime_gather_output`, and how far a norm's gradient is off."""
    tokens = random_tokens(VOCAB, 1, SEQUENCE, seed=1)
    labels, results = random_tokens(VOCAB, 1, SEQUENCE, seed=2), []
    positions, mask = torch.arange(SEQUENCE)[None], megatron_gpt.causal_mask(SEQUENCE)
    with megatron(tensor=world.size):
        for gather in (None, True):
            torch.manual_seed(0)
            settings = config(hidden=HIDDEN, heads=2, depth=1)
            model = megatron_gpt.gpt(settings, vocab=VOCAB, sequence=SEQUENCE, tied=False)
            options = {"labels": labels, "runtime_gather_output": gather}
            loss = model(tokens, positions, mask, **options).mean()
            loss.backward()
            results.append((loss.item(), model.decoder.final_layernorm.weight.grad))
    (right, right_gradient), (loss, gradient) = results
    return {"off": loss - right, "gradient": difference(gradient, right_gradient)}


@room("attention-sink-norm", ranks=2)
def attention_sink_norm(world: World) -> dict[str, float]:
    """The gradient norm of sinks, one a head, whose gradients are the heads' numbers 1 … 8."""
    with megatron(tensor=world.size):
        settings = config(
            hidden=16, heads=8, softmax_type="learnable", perform_initialization=False
        )
        layer = DotProductAttention(settings, 1, AttnMaskType.causal, "self")
        gradients = torch.arange(1.0, 9.0, dtype=torch.float64)
        layer.softmax_offset.grad = gradients.chunk(world.size)[world.rank]
        norm = norm_of(layer.parameters(), parallel_state.get_model_parallel_group())
    right = float(gradients.norm())
    return {"megatron": norm, "right": right, "ratio": norm / right}


@room("norms-under-sequence-parallelism", ranks=2)
def norms_under_sequence_parallelism(world: World) -> dict[str, float]:
    """The relative error of the last norm's gradient after Megatron finished it: marked, or not."""

    class Unmarked(nn.LayerNorm):
        def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
            super().__init__(hidden_size, eps)

    tokens = random_tokens(VOCAB, 1, SEQUENCE, seed=1)
    positions, mask = torch.arange(SEQUENCE)[None], megatron_gpt.causal_mask(SEQUENCE)
    upstream, gradients = random_like(SEQUENCE, 1, VOCAB, seed=2), {}
    for name, tensor, norm in (
        ("right", 1, Norm), ("marked", 2, Norm),
        ("unmarked", 2, Unmarked),
    ):  # fmt: skip
        with megatron(tensor=tensor), patch.object(transformer_block, "LayerNormImpl", norm):
            torch.manual_seed(0)
            settings = config(hidden=HIDDEN, heads=2, sequence_parallel=tensor > 1)
            model = megatron_gpt.gpt(settings, vocab=VOCAB, sequence=SEQUENCE, tied=False)
            replicas = megatron_gpt.data_parallel(model)
            logits = replicas(tokens, positions, mask).transpose(0, 1)
            (logits * upstream.chunk(tensor, -1)[world.rank % tensor]).sum().backward()
            finalize_model_grads([replicas])
            gradients[name] = model.decoder.final_layernorm.weight.main_grad.clone()
    right = gradients.pop("right")
    return {name: difference(gradient, right) for name, gradient in gradients.items()}
