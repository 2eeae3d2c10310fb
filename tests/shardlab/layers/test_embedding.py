"""The embedding and the head against torch's; above all, vocabularies that do not divide.

A token looked up on the wrong rank, or added twice, fails the equality; padding that takes part in
anything fails where it is looked for.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.layers import ops
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from shardlab.layers.init import Init
from shardlab.layers.sharding import whole
from tests.shardlab.pool import on_ranks

S, B, H = 8, 3, 6
EXACT = 1e-12
# On 4 ranks: 16 divides, 13 pads the last, 5 leaves rank 2 one word and rank 3 none.
VOCABULARIES = [16, 13, 5, 3]


def tokens_of(vocab: int, device: torch.device) -> Tensor:
    """[S, B] with every word in it and words that come twice; not contiguous."""
    generator = torch.Generator().manual_seed(vocab)
    tokens = torch.randint(0, vocab, (B, S), generator=generator)
    tokens.view(-1)[:vocab] = torch.arange(vocab)
    return tokens.to(device).t()


def init(world: World) -> Init:
    return Init(dtype=torch.float64, std=1.0, device=world.device)


@pytest.mark.parametrize("size", [2, 4, 8])
@on_ranks("size")
def test_padding_never_wins_and_takes_no_gradient(world: World) -> None:
    """Rank by rank: padding is zero, loses to the smallest logit, and stays so in training."""
    axis = world.whole
    for vocab in VOCABULARIES:
        layer = VocabParallelHead(vocab, H, axis=axis, init=init(world))
        length = layer.weight.shape[0]
        words = min(max(vocab - axis.rank * length, 0), length)
        # All words' logits far below zero, where padding's zero weights would give 0.
        x = -1e3 * whole(layer.weight).sum(0).expand(S, B, H)
        logits = layer(x)
        gathered = ops.gather_along(logits.detach(), axis, -1)
        assert gathered.argmax(-1).max() < vocab
        assert gathered.isfinite().all()
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, weight_decay=0.1)
        cross_entropy(logits, tokens_of(vocab, world.device), axis=axis).sum().backward()
        assert layer.weight.grad is not None
        assert not layer.weight.grad[words:].any(), "padding took gradient"
        optimizer.step()
        assert not layer.weight[words:].any(), "padding moved"


@on_ranks(2)
def test_a_tied_head_holds_the_embeddings_own_parameter(world: World) -> None:
    axis = world.whole
    embedding = VocabParallelEmbedding(13, H, axis=axis, init=init(world))
    layer = VocabParallelHead(13, H, axis=axis, weight=embedding.weight)
    assert layer.weight is embedding.weight
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
