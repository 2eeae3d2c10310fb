"""1F1B and zero bubble, ours and torch's, on stages that compute or that wait in place of work.

torch has no ZB-H1: its ScheduleInterleavedZeroBubble is interleaved 1F1B in two, here with one
chunk a stage.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleavedZeroBubble,
)

from costlab.implementations import bubble, schedulers, tutor
from costlab.implementations.rounds import Step
from costlab.implementations.schedulers import Data
from shardlab.comm import Axis, World
from shardlab.layers.linear import ColumnParallelLinear
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name

Loss = Callable[[Tensor, Tensor], Tensor]
HIDDEN, SECONDS = 512, 0.01


class WaitingApart(bubble.Waiting):
    """One that sleeps as long again for a weight's gradient, whenever that is computed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.one = ColumnParallelLinear(1, 1, axis=Axis.alone(), bias=False)
        self.one.weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _: time.sleep(seconds)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        column: Tensor = self.one(y[:, :1])
        return y + column


def mean_square(y: Tensor, _: Tensor) -> Tensor:
    return y.square().mean()


@contextmanager
def computing(world: World, *, microbatches: int) -> Iterator[dict[str, Step]]:
    data = schedulers.batches(world.device, microbatches)

    def of(kind: str, make: Callable[..., Step]) -> Step:
        stage = schedulers.stage_of(world, HIDDEN)
        shape = stage.hidden_shape(1, tutor.SEQUENCE)
        return make(world, kind, stage, data, stage.loss, shape)

    yield contestants(of)


@contextmanager
def waiting(world: World, *, microbatches: int) -> Iterator[dict[str, Step]]:
    """The same of stages that wait, as long for weights as for all."""
    x_BH = torch.ones(bubble.BATCH, bubble.HIDDEN)
    data = [(x_BH, x_BH)] * microbatches

    def of(kind: str, make: Callable[..., Step]) -> Step:
        return make(world, kind, WaitingApart(SECONDS), data, mean_square, x_BH.shape)

    yield contestants(of)


def contestants(of: Callable[[str, Callable[..., Step]], Step]) -> dict[str, Step]:
    return {
        "1f1b": of("1f1b", ours),
        "zb-h1": of("zb-h1", ours),
        "torch, 1f1b": of("1f1b", torchs),
        "torch, zero bubble": of("zero bubble", torchs),
    }


def ours(
    world: World, kind: str, stage: nn.Module, data: Data, loss: Loss, shape: tuple[int, ...]
) -> Step:
    axis = world.axis("pipeline", range(world.size))
    schedule = by_name(kind, axis.size, len(data))

    def step() -> float | None:
        stage.zero_grad()
        return schedulers.mean(run(schedule, stage, data, loss, axis=axis, shape=shape))

    return step


def torchs(world: World, kind: str, stage: nn.Module, data: Data, loss: Loss, _: object) -> Step:
    axis = world.axis("pipeline", range(world.size))
    place = PipelineStage(stage, axis.rank, axis.size, world.device, group=axis.group)
    schedule: Any = (
        Schedule1F1B(place, len(data), loss)
        if kind == "1f1b"
        else ScheduleInterleavedZeroBubble([place], len(data), loss)
    )
    return schedulers.stepped(schedule, axis, stage, data)
