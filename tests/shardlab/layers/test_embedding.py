"""The embedding and the head against torch's; above all, vocabularies that do not divide.

A token looked up on the wrong rank, or added twice, fails the equality; padding that takes part in
anything fails where it is looked for.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import World
from shardlab.layers import ops
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from shardlab.layers.init import Init, keyed_normal
from shardlab.layers.sharding import sharding_of, whole
from tests.shardlab.pool import on_ranks
from tests.shardlab.reference import relative_error

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


@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["whole", "sequence_parallel"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@on_ranks("size")
def test_lookup_equals_the_whole_table(world: World, sequence_parallel: bool) -> None:
    axis, errors = world.whole, {}
    for vocab in VOCABULARIES:
        layer = VocabParallelEmbedding(
            vocab, H, axis=axis, sequence_parallel=sequence_parallel, init=init(world)
        )
        table = nn.Embedding(vocab, H, _weight=whole(layer.weight).clone())
        tokens = tokens_of(vocab, world.device)
        x, expected = layer(tokens), table(tokens)
        g = torch.randn(B, S, H, dtype=torch.float64, device=world.device).transpose(0, 1)
        expected.backward(g)
        rows = sequence_parallel and axis.size > 1
        x.backward(ops.local_slice(g, axis, 0) if rows else g)
        x = x.detach()
        errors[f"{vocab} words"] = relative_error(
            ops.gather_along(x, axis, 0) if rows else x, expected
        )
        actual = whole(layer.weight, layer.weight.grad)
        errors[f"{vocab} words, gradient"] = relative_error(actual, table.weight.grad)
    assert {what: e for what, e in errors.items() if not e <= EXACT} == {}


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@on_ranks("size")
def test_head_and_loss_equal_the_whole_ones(world: World) -> None:
    axis, errors = world.whole, {}
    for vocab in VOCABULARIES:
        layer = VocabParallelHead(vocab, H, axis=axis, init=init(world))
        reference = nn.Linear(H, vocab, bias=False, dtype=torch.float64, device=world.device)
        with torch.no_grad():
            reference.weight.copy_(whole(layer.weight))
        x = torch.randn(S, B, H, dtype=torch.float64, device=world.device)
        x_copy, reference_x = x.clone().requires_grad_(), x.clone().requires_grad_()
        targets = tokens_of(vocab, world.device)
        loss = cross_entropy(layer(x_copy), targets, axis=axis).sum()
        expected = nn.functional.cross_entropy(
            reference(reference_x).flatten(0, 1), targets.flatten(), reduction="sum"
        )
        loss.backward()
        expected.backward()
        errors[f"{vocab} words"] = relative_error(loss, expected)
        errors[f"{vocab} words, dx"] = relative_error(x_copy.grad, reference_x.grad)
        actual = whole(layer.weight, layer.weight.grad)
        errors[f"{vocab} words, dW"] = relative_error(actual, reference.weight.grad)
    assert {what: e for what, e in errors.items() if not e <= EXACT} == {}


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


def whole_weights(world: World) -> Tensor:
    layer = VocabParallelEmbedding(13, H, axis=world.whole, name="words", init=init(world))
    sharding = sharding_of(layer.weight)
    assert sharding is not None
    assert (sharding.size, sharding.padded) == (13, -(-13 // world.size) * world.size)
    return whole(layer.weight).cpu()


def test_every_axis_starts_from_the_same_words(pool) -> None:
    expected = keyed_normal("words.weight", (13, H), seed=0, std=1.0, dtype=torch.float64)
    for size in (1, 2, 4):
        for actual in pool(size).run(whole_weights):
            assert torch.equal(actual, expected)


@on_ranks(2)
def test_a_tied_head_holds_the_embeddings_own_parameter(world: World) -> None:
    axis = world.whole
    embedding = VocabParallelEmbedding(13, H, axis=axis, init=init(world))
    layer = VocabParallelHead(13, H, axis=axis, weight=embedding.weight)
    assert layer.weight is embedding.weight
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
