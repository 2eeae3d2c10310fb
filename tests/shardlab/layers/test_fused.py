"""What is taught trains, and the fused form computes the same: a step of a GPT by each."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

from shardlab.comm import World
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.layers import ops
from shardlab.layers.matmul import fuse
from tests.shardlab.pool import on_ranks

CONFIG = GPTConfig(layers=2, hidden=16, heads=4, vocab=29, sequence=8, dtype=torch.float64)
CROSSES = {"copy_to", "reduce_from", "all_gather", "reduce_scatter"}


def gradients(world: World, sequence_parallel: bool, fused: bool) -> dict[str, torch.Tensor]:
    """The loss and the gradients of one step over a tensor axis, and the step's weights."""
    model = GPT(
        CONFIG, tensor=world.whole, sequence_parallel=sequence_parallel, device=world.device
    )
    if fused:
        fuse(model)
    words = torch.randint(29, (2, 8), generator=torch.Generator().manual_seed(1)).to(world.device)
    loss = model.loss(model(words), words.roll(-1, 1))
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    by_name = {name: p.grad for name, p in model.named_parameters()}
    return {"loss": loss.detach()} | {name: g for name, g in by_name.items() if g is not None}


@pytest.mark.parametrize(
    ("sequence_parallel", "expected"),
    [(False, {"copy_to", "reduce_from"}), (True, {"all_gather", "reduce_scatter"})],
)
@on_ranks(2)
def test_what_crosses_the_axis_in_a_plain_step_is_what_ops_teaches(
    world: World, sequence_parallel: bool, expected: set[str]
) -> None:
    """Which of ops' Functions ran, forward or backward, in a plain step."""
    ran = set()

    def noting(name: str) -> None:
        call = getattr(ops, name)

        def noted(*args: object, **settings: object) -> object:
            ran.add(name)
            return call(*args, **settings)

        names[name] = noted

    names: dict[str, object] = {}
    for name in CROSSES:
        noting(name)
    with patch.multiple(ops, **names):
        gradients(world, sequence_parallel, False)
    assert ran == expected
