"""Our embedding, loss and block beside megatron-core's, from the same weights, on real processes.

Where test_against_megatron_linear.py passes and this does not, look at what is not a linear: rows
of the vocabulary that another rank holds, heads cut in the wrong order, norms whose gradients are
partial under sequence parallelism.

Dimensions: S sequence, B batch, H hidden, v this rank's words; lower case where sharded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from costlab.implementations import megatron as mcore
from costlab.implementations.megatron import gpt as megatron_gpt
from shardlab.comm import World
from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.embedding import VocabParallelEmbedding
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import (
    demand_alike,
    differences,
    random_like,
    random_tokens,
)
from tests.shardlab.layer_twins import B, Call, Errors, H, S, copied, fp64, part, steps_for, trained


def embedding(world: World) -> Errors:
    errors = {}
    vocab = 3 * world.size
    with default_device(world), mcore.megatron(tensor=world.size):
        tokens_BS = random_tokens(vocab, B, S, seed=0)
        for sequence in [False, True][: world.size]:
            ours = VocabParallelEmbedding(
                vocab, H, axis=world.whole, sequence_parallel=sequence, init=fp64(world)
            )
            reference = mcore.VocabParallelEmbedding(
                vocab, H, init_method=nn.init.ones_, reduce_scatter_embeddings=sequence,
                config=mcore.config(hidden=H, sequence_parallel=sequence),
            )  # fmt: skip
            copied(world, ours, reference, {"weight": "weight"})
            target = random_like(S, B, H, seed=2)
            target = part(world, target, 0) if sequence else target

            # Megatron turns [B, S] to [S, B] only where it scatters, by itself.
            def call(tokens: Tensor, layer: Any = reference, turned: bool = not sequence) -> Tensor:
                y: Tensor = layer(tokens)
                return y.transpose(0, 1) if turned else y

            errors[f"{sequence=}"] = differences(
                trained(world, ours, ours, tokens_BS.t(), target),
                trained(world, reference, call, tokens_BS, target),
            )
    return errors


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_embedding_equals_megatrons(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(embedding))


def losses(world: World) -> Errors:
    """Megatron's loss in fp32, against ours in fp32 and fp64."""

    def seen(call: Call, dtype: torch.dtype) -> dict[str, Tensor]:
        x = logits.to(dtype).requires_grad_()
        loss = call(x * 1.0)  # Megatron writes over fp32 logits; a leaf would refuse that
        (loss * weight).sum().backward()
        assert x.grad is not None
        return {"loss": loss.detach().float(), "gradient": x.grad.float()}

    v = 5
    with default_device(world), mcore.megatron(tensor=world.size):
        targets = random_tokens(v * world.size, S, B, seed=0)
        weight = random_like(S, B, seed=1).float()
        logits = part(world, random_like(S, B, v * world.size, seed=2).mul(3), -1)
        reference = seen(lambda x: mcore.vocab_parallel_cross_entropy(x, targets), torch.float32)
        return {
            str(dtype): differences(
                seen(lambda x: cross_entropy(x, targets, axis=world.whole), dtype), reference
            )
            for dtype in (torch.float32, torch.float64)
        }


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_loss_equals_megatrons_within_its_fp32(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(losses), tolerance=1e-6)


BLOCK = {
    "norm1": "input_layernorm",
    "attention.qkv": "self_attention.linear_qkv",
    "attention.proj": "self_attention.linear_proj",
    "norm2": "pre_mlp_layernorm",
    "mlp.fc1": "mlp.linear_fc1",
    "mlp.fc2": "mlp.linear_fc2",
}


def blocks(world: World) -> Iterator[tuple[str, Block, nn.Module]]:
    """Yield (case, ours, Megatron's) of each block; Megatron's parallel state must exist."""
    heads = 8
    for groups, sequence, bias in product([8, 4, 2], [False, True], [True, False]):
        if groups % world.size or (sequence and world.size == 1):
            continue
        config = mcore.config(
            hidden=H, heads=heads, num_query_groups=groups, sequence_parallel=sequence,
            add_bias_linear=bias,
        )  # fmt: skip
        ours = Block(
            GPTConfig(
                layers=1, hidden=H, heads=heads, kv_heads=groups, vocab=8, sequence=S, bias=bias
            ),
            "layers.0", axis=world.whole, sequence_parallel=sequence, init=fp64(world),
        )  # fmt: skip
        reference = megatron_gpt.transformer_layer(config)
        names = {
            name: name.replace(prefix, megatron_prefix)
            for name, _ in ours.named_parameters()
            for prefix, megatron_prefix in BLOCK.items()
            if name.startswith(prefix)
        }
        copied(world, ours, reference, names)
        yield f"{groups=} {sequence=} {bias=}", ours, reference


def block(world: World) -> Errors:
    errors = {}
    with default_device(world), mcore.megatron(tensor=world.size):
        mask = megatron_gpt.causal_mask(S)
        for case, ours, reference in blocks(world):
            x, target = random_like(S, B, H, seed=101), random_like(S, B, H, seed=102)
            if "sequence=True" in case:
                x, target = part(world, x, 0), part(world, target, 0)

            def call(x: Tensor, layer: Any = reference) -> Tensor:
                y: Tensor = layer(x, attention_mask=mask)[0]
                return y

            steps = steps_for(world.size, len(errors))
            expected = trained(world, reference, call, x, target, steps)
            for prefix, megatron_prefix in BLOCK.items():
                expected = {k.replace(megatron_prefix, prefix): v for k, v in expected.items()}
            errors[case] = differences(trained(world, ours, ours, x, target, steps), expected)
    return errors


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.ci), 8])
def test_a_block_equals_megatrons_transformer_layer(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(block))
