"""1F1B and zero bubble, ours and torch's, on stages that compute or that wait in place of work.

torch has no ZB-H1: its ScheduleInterleavedZeroBubble is interleaved 1F1B in two, here with one
chunk a stage.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from costlab.implementations import bubble, schedulers
from costlab.implementations.rounds import Step
from costlab.implementations.schedulers import Work
from shardlab.comm import Axis, World
from shardlab.layers.linear import ColumnParallelLinear

HIDDEN, SECONDS = 512, 0.01


class WaitingApart(bubble.Waiting):
    """A stage that sleeps as long again for a weight's gradient, whenever that is computed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.linear = ColumnParallelLinear(1, 1, axis=Axis.alone(), bias=False)
        self.linear.weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _: time.sleep(seconds)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Sleep, with a weight whose gradient is computed in its own time."""
        y = super().forward(x)
        column: Tensor = self.linear(y[:, :1])
        return y + column


def mean_square(y: Tensor, _: Tensor) -> Tensor:
    """Return the mean of the squares, a loss without targets."""
    return y.square().mean()


@contextmanager
def computing(world: World, *, microbatches: int) -> Iterator[dict[str, Step]]:
    """Contestants on the stages of a GPT."""
    data = schedulers.batches(world.device, microbatches)
    yield _contestants(world, lambda: schedulers.gpt_work(world, HIDDEN, data))


@contextmanager
def waiting(world: World, *, microbatches: int) -> Iterator[dict[str, Step]]:
    """Contestants on stages that wait: forward, backward and weight gradient equally long."""
    x_BH = torch.ones(bubble.BATCH, bubble.HIDDEN)
    data = [(x_BH, x_BH)] * microbatches
    yield _contestants(world, lambda: Work(WaitingApart(SECONDS), data, mean_square, x_BH.shape))


def _contestants(world: World, work: Callable[[], Work]) -> dict[str, Step]:
    axis = world.axis("pipeline", range(world.size))
    return {
        "1f1b": schedulers.ours(axis, "1f1b", work()),
        "zb-h1": schedulers.ours(axis, "zb-h1", work()),
        "torch, 1f1b": schedulers.torchs(axis, "1f1b", work()),
        "torch, zero bubble": schedulers.torchs(axis, "zero bubble", work()),
    }
