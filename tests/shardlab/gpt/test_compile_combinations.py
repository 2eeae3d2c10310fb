"""torch.compile, autocast and activation checkpointing over our GPT, alone and together.

Each combination's loss and gradients are compared with the plain step's, on one rank and on two.
Dropout is on: what is recomputed must draw the masks again that it drew before.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from shardlab.comm import World
from shardlab.gpt.block import Block
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers.init import Init
from tests.shardlab.difference import random_tokens
from tests.shardlab.pool import on_ranks

WAYS = ("compile", "autocast", "checkpoint")
CONFIG = GPTConfig(layers=1, hidden=64, heads=4, vocab=64, sequence=32, dropout=0.1)
BATCH = 4
EXACT, ROUNDED = 1e-4, 5e-2  # relative; bf16 keeps eight bits


class Recomputed(nn.Module):
    """A block that keeps its input alone, and runs again in backward."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x_sBH: Tensor) -> Any:
        return checkpoint(self.block, x_sBH, use_reentrant=False)


def step(world: World, ways: tuple[str, ...]) -> tuple[Tensor, list[Tensor]]:
    """Return the loss of one step, and every gradient of this rank."""
    model = GPT(CONFIG, tensor=world.whole, device=world.device)
    parameters = list(model.parameters())
    tokens_BS = random_tokens(CONFIG.vocab, BATCH, CONFIG.sequence + 1, seed=0).to(world.device)
    if "checkpoint" in ways:
        for name, block in model.layers.items():
            model.layers[name] = Recomputed(block)
    run: Any = model
    if "compile" in ways:
        # On the CPU inductor needs a C++ compiler and a second for every graph.
        run = torch.compile(
            model, backend="inductor" if world.device.type == "cuda" else "aot_eager"
        )
    low = torch.autocast(world.device.type, torch.bfloat16) if "autocast" in ways else nullcontext()
    with low:
        logits_SBv = run(tokens_BS[:, :-1])
        loss = model.loss(logits_SBv.float(), tokens_BS[:, 1:])
    loss.backward()
    return loss.detach(), [p.grad.float() for p in parameters if p.grad is not None]


def compare(world: World, ways: tuple[str, ...]) -> float:
    """Return the largest relative difference of the loss and the gradients to the plain step's."""
    # On a GPU bf16 takes another fused kernel than fp32, which drops other weights at one seed.
    with sdpa_kernel(SDPBackend.MATH) if "autocast" in ways else nullcontext():
        plain, expected = step(world, ())
        loss, gradients = step(world, ways)
    torch.compiler.reset()
    scale = max(float(gradient.abs().max()) for gradient in expected)
    worst = max(float((a - b).abs().max()) for a, b in zip(gradients, expected, strict=True))
    return max(float((loss - plain).abs() / plain), worst / scale)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.ci)])
@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(ways, id="+".join(ways), marks=[pytest.mark.ci] * (count == 2))
        for count in (1, 2, 3)
        for ways in combinations(WAYS, count)
    ],
)
def test_a_combination_equals_the_plain_step(pool, size: int, ways: tuple[str, ...]) -> None:
    limit = ROUNDED if "autocast" in ways else EXACT
    assert max(pool(size).run(compare, ways)) <= limit


@on_ranks(2)
def test_a_compiled_layer_computes_the_same(world: World) -> None:
    """What compiling leaves as it is of the feed-forward pair; its graph breaks at collectives."""
    config = GPTConfig(layers=1, hidden=16, heads=8, vocab=1, sequence=8)
    init = Init(dtype=torch.float64, device=world.device)
    layer = Block(config, "block", axis=world.whole, sequence_parallel=True, init=init).mlp
    x = torch.randn(8 // world.size, 2, 16, dtype=torch.float64, device=world.device)
    results = []
    for call in (layer, torch.compile(layer, backend="eager")):
        y = call(x)
        results.append([y, *torch.autograd.grad(y.sum(), list(layer.parameters()))])
    assert [torch.equal(a, b) for a, b in zip(*results, strict=True)] == [True] * 5
