"""The bubble as it is: a schedule run over real processes by stages of known, equal cost.

Kinds of stage:

- "compute" works: a stack of matrix products, one thread. Honest only with a core for each stage.
- "wait" stands in for work: it sleeps for a fixed time, forward and backward. That measures the
  schedule and its messages on any number of stages, and nothing about computing.

Dimensions: B batch, H hidden.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from costlab.record.noise import NoiseMonitor
from shardlab.comm import World
from shardlab.pipeline.action import Span
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import Timeline, peak_live

# A message is B·H, a stage's work B·H²·DEPTH: deep, so that theory, whose messages take no time, is
# what is measured.
BATCH, HIDDEN, DEPTH = 64, 512, 24


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return grad.clone(), None


class Waiting(nn.Module):
    """A stage that sleeps `seconds` forward and as long backward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Sleep."""
        y: Tensor = _Wait.apply(x + self.anchor, self.seconds)  # type: ignore[no-untyped-call]
        return y


def stage(kind: str, seconds: float) -> nn.Module:
    """A stage that computes, or one that waits `seconds`."""
    if kind == "wait":
        return Waiting(seconds)
    return nn.Sequential(*(nn.Linear(HIDDEN, HIDDEN) for _ in range(DEPTH)))


def measured(
    world: World, module: nn.Module, *, schedule: str, microbatches: int, rounds: int,
    watch: NoiseMonitor,
) -> list[Timeline]:  # fmt: skip
    """Each round's timeline, all stages', on every rank; the first round is not counted.

    Args:
        module: this rank's stage.
        watch: told of the rounds; half of them are to be clean.
    """
    actions = by_name(schedule, world.size, microbatches)
    x_BH = torch.ones(BATCH, HIDDEN)
    axis = world.axis("pipeline", range(world.size))

    def once() -> Timeline:
        spans: list[Span] = []
        module.zero_grad()
        run(
            actions, module, [(x_BH, x_BH)] * microbatches, lambda y, _: y.square().mean(),
            axis=axis, shape=x_BH.shape, record=spans,
        )  # fmt: skip
        every: Timeline = [[] for _ in range(world.size)]
        dist.all_gather_object(every, spans)  # processes of one host, whose clocks are one
        return every

    once()
    timelines = []
    while not watch.enough(rounds):
        with watch.round():
            timelines.append(once())
    return watch.select_clean(rounds // 2, timelines)


def live(timeline: Timeline) -> int:
    """The most micro-batches that any stage held activations of, as it ran."""
    return max(peak_live([span.action for span in stage]) for stage in timeline)
