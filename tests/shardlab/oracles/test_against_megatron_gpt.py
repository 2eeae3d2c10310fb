"""Our GPT beside megatron-core's GPTModel, without a pipeline: forward, gradients, some steps.

Where the linears (test_linear.py) pass and this does not, look at what joins the layers: the
embeddings under sequence parallelism, tied weights, the norms' partial gradients, data parallelism.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from costlab.implementations import megatron as mcore
from costlab.implementations.megatron import gpt as megatron_gpt
from shardlab.comm import World
from shardlab.grid.grid import Grid
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import demand_alike, random_tokens
from tests.shardlab.gpt_twins import (
    HEADS,
    SEQUENCE,
    VOCAB,
    Case,
    MegatronTwin,
    Ours,
    compared,
    steps_for,
    whole_weights,
)


def variants(tensor: int, data: int) -> list[Case]:
    """Everything that can differ at TP = 2; elsewhere all of it off, and all of it on."""
    parallel = [False, True] if tensor > 1 else [False]
    if (tensor, data) == (2, 1):
        flags = list(product([False, True], [8, 4, 2], parallel))
    else:
        flags = [(False, HEADS, False), (True, max(tensor, 2), parallel[-1])]
    return [
        Case(
            tensor, 1, data, tied, groups, sequence, microbatches=1 + (data > 1),
            steps=steps_for(tensor * data, index),
        )
        for index, (tied, groups, sequence) in enumerate(flags)
    ] + [
        Case(
            tensor, 1, data, groups=max(tensor, 2), sequence_parallel=parallel[-1],
            microbatches=1 + (data > 1), steps=steps_for(tensor * data, 1), llama=True,
        )
    ]  # fmt: skip


GRIDS = [
    pytest.param(t, d, marks=[pytest.mark.ci] * (max(t, d) > 2))
    for t in (1, 2, 4, 8)
    for d in (1, 2, 4, 8)
    if t * d <= 8
]


@pytest.mark.gpu_each
@pytest.mark.parametrize(("tensor", "data"), GRIDS)
def test_the_gpt_equals_megatrons(pool: Any, tensor: int, data: int) -> None:
    demand_alike(pool(tensor * data).run(compared, variants(tensor, data)))


def own_losses(world: World) -> tuple[float, float]:
    """Ours in fp64, Megatron's in its fp32, on the same tokens."""
    case = Case(tensor=world.size)
    grid = Grid(world=world, tensor=world.size)
    with default_device(world), mcore.megatron(tensor=world.size):
        weights = whole_weights(case.config())
        tokens = random_tokens(VOCAB, 2, SEQUENCE, seed=0)
        targets = tokens.roll(-1, 1)
        model = Ours(case, grid, weights).model
        ours = model.loss(model(tokens), targets)
        reference = MegatronTwin(case, grid, weights).model(
            tokens,
            torch.arange(SEQUENCE).expand_as(tokens),
            megatron_gpt.causal_mask(SEQUENCE),
            labels=targets,
        )
    return ours.item(), reference.mean().item()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_whole_models_loss_equals_megatrons_within_its_fp32(pool: Any, size: int) -> None:
    for ours, reference in pool(size).run(own_losses):
        assert ours == pytest.approx(reference, rel=1e-6)
