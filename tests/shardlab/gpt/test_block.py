"""A block against the reference block, plain and compiled."""

from __future__ import annotations

import pytest
import torch

from shardlab.comm import World
from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.layers.init import Init
from tests.shardlab.layer_twins import layer_errors
from tests.shardlab.pool import on_ranks
from tests.shardlab.reference import ReferenceBlock

S, B, H, HEADS = 8, 2, 16, 8
EXACT = 1e-12
CONFIG = GPTConfig(layers=1, hidden=H, heads=HEADS, vocab=1, sequence=S)


def block_of(world: World, sequence_parallel: bool) -> Block:
    init = Init(dtype=torch.float64, device=world.device)
    return Block(CONFIG, "block", axis=world.whole, sequence_parallel=sequence_parallel, init=init)


@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["whole", "sequence_parallel"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@on_ranks("size")
def test_block_equals_the_reference_block(world: World, sequence_parallel: bool) -> None:
    layer = block_of(world, sequence_parallel)
    reference = ReferenceBlock(H, HEADS, HEADS, 4 * H, bias=True).double().to(world.device)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randn(B, S, H, dtype=torch.float64, device=world.device)
    errors = layer_errors(layer, reference, x, world.whole, sequence_parallel=sequence_parallel)
    assert {what: e for what, e in errors.items() if not e <= EXACT} == {}


@on_ranks(2)
def test_a_compiled_layer_computes_the_same(world: World) -> None:
    """What compiling leaves as it is of the feed-forward pair; its graph breaks at collectives."""
    layer = block_of(world, True).mlp
    x = torch.randn(S // world.size, B, H, dtype=torch.float64, device=world.device)
    results = []
    for call in (layer, torch.compile(layer, backend="eager")):
        y = call(x)
        results.append([y, *torch.autograd.grad(y.sum(), list(layer.parameters()))])
    assert [torch.equal(a, b) for a, b in zip(*results, strict=True)] == [True] * 5
