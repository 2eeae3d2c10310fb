"""The 1F1B with explicit sends equals the unsharded model and the 1F1B that `run` schedules.

A message in the wrong order shows in the first gradients, a wrong scale in all of them, and sends
that wait for each other show in a rank that never comes back.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.pipeline.plain_1f1b import run_plain_1f1b
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import one_forward_one_backward
from tests.shardlab import pieces
from tests.shardlab.difference import difference, differences, list_exceeding
from tests.shardlab.pieces import BATCH, HIDDEN, chunks_of, gradients_of, sum_tied

MICROBATCHES = [1, 2, 3, 4, 8, 12]  # fewer than stages, as many, and more
Whole = tuple[Tensor, dict[str, Tensor]]


def compare(world: World, whole: Whole) -> dict[str, dict[str, float]]:
    """Compare a step's losses and gradients with the unsharded model, and with `run` bit by bit."""
    axis = world.axis("pipeline", range(world.size))
    errors: dict[str, dict[str, float]] = {}
    for m in MICROBATCHES:
        plain, scheduled = chunks_of(world), chunks_of(world)
        batch, shape = pieces.microbatches(m), (BATCH // m, HIDDEN)
        losses = run_plain_1f1b(plain[0], batch, pieces.loss, axis=axis, shape=shape)
        schedule = one_forward_one_backward(world.size, m)
        expected = run(schedule, scheduled[0], batch, pieces.loss, axis=axis, shape=shape)
        assert len(losses) == (m if world.rank == world.size - 1 else 0)
        assert all(map(torch.equal, losses, expected))
        gradients = gradients_of(plain)
        for name, gradient in gradients_of(scheduled).items():
            assert torch.equal(gradients.pop(name), gradient), f"{name}, {m} micro-batches"
        assert not gradients
        sum_tied(world, plain)
        gradients = gradients_of(plain)
        errors[f"gradients, {m}"] = differences(
            gradients, {name: whole[1][name] for name in gradients}
        )
        if losses:
            mean = torch.stack(losses).mean()
            errors[f"losses, {m}"] = {"": difference(mean, whole[0])}
    return errors


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_losses_and_gradients_equal_the_unsharded_model_and_the_schedule(pool, p: int) -> None:
    assert list_exceeding(pool(p).run(compare, pieces.whole_step())) == []
