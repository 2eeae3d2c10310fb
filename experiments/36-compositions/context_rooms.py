"""Sequences cut over ranks meet masked tokens, and an attention that wants more than q, k and v."""

from __future__ import annotations

from typing import Any

import torch
from room import difference, random_like, random_tokens, room
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from costlab.implementations.megatron import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    config,
    finalize_model_grads,
    megatron,
    schedules,
)
from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers.cross_entropy import IGNORED, cross_entropy

VOCAB, TOKENS = 8, 8


def gpt(context: ContextParallel | None = None) -> GPT:
    """Ours, whose attention is right over cut sequences: Megatron's wants Transformer Engine."""
    settings = GPTConfig(
        layers=1, hidden=8, heads=2, kv_heads=2, ffn=8, vocab=VOCAB, sequence=TOKENS,
        dtype=torch.float64, init_std=0.2,
    )  # fmt: skip
    return GPT(settings, tensor=Axis.alone(), context=context)


@room("context-masked", ranks=2)
def context_masked(world: World) -> dict[str, float]:
    """A gradient where one token of a sequence counts: Megatron's loss and reduction, and ours."""
    text, targets = (random_tokens(VOCAB, 1, TOKENS, seed=seed) for seed in (1, 2))
    targets[:, 1:] = IGNORED
    alone, context = gpt(), ContextParallel(world.whole)
    alone.loss(alone(text), targets).backward()
    right, errors = alone.final_norm.weight.grad, {}
    shard, wanted = context.shard(text), context.shard(targets)

    def loss(logits: Tensor) -> tuple[Tensor, Tensor, dict[str, float]]:
        losses = cross_entropy(logits, wanted.t(), axis=Axis.alone())
        return losses.sum(), (wanted != IGNORED).sum().int(), {}

    with megatron(context_parallel_size=2):
        for name, per_token in (("by default", False), ("per token", True)):
            model = gpt(context)
            settings = config(hidden=8, context_parallel_size=2, calculate_per_token_loss=per_token)
            replicas = DistributedDataParallel(settings, DistributedDataParallelConfig(), model)
            value, tokens = schedules.forward_step_calc_loss(
                model, replicas(shard), loss, settings, None, False, 1, []
            )
            value.backward()
            finalize_model_grads([replicas], tokens if per_token else None)
            errors[name] = difference(model.final_norm.weight.main_grad, right)
            errors[f"{name}, ratio"] = float(
                model.final_norm.weight.main_grad.norm() / right.norm()
            )
    ours = gpt(context)
    replicas = DataParallel(ours.named_parameters(), world.whole)
    ours.loss(ours(shard), wanted).backward()
    replicas.finish()
    return errors | {"ours": difference(ours.final_norm.weight.grad, right)}


def attention_by_name(q: Tensor, k: Tensor, v: Tensor, *, context: Any, **_: Any) -> Tensor:
    """What a framework puts in the place of a model's attention; all else is taken, and dropped."""
    return context.attend(q, k, v)


@room("dropped-sinks", ranks=2)
def dropped_sinks(world: World) -> dict[str, float]:
    """A minimal model: a model hands its sinks to an attention that swallows what it ignores."""
    q, k, v = (random_like(1, 2, TOKENS, 4, seed=seed) for seed in (1, 2, 3))
    sinks = torch.tensor([1.0, 2.0], dtype=torch.float64)
    # A sink is one more score in the softmax's sum, with no value of its own.
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
    shares = torch.cat([scores, sinks.view(1, 2, 1, 1).expand(1, 2, 8, 1)], -1).softmax(-1)
    right = shares[..., :-1] @ v
    context = ContextParallel(world.whole, "ulysses")
    here = context.positions(TOKENS // 2)
    parts = [x[:, :, here] for x in (q, k, v)]
    actual = attention_by_name(*parts, context=context, s_aux=sinks)
    plain = scaled_dot_product_attention(q, k, v, is_causal=True)
    try:
        context.attend(*parts, s_aux=sinks)  # type: ignore[call-arg]
        refused = 0.0
    except TypeError:
        refused = 1.0
    return {
        "swallowed": difference(actual, right[:, :, here]),
        "without any": difference(actual, plain[:, :, here]),
        "refused": refused,
    }
