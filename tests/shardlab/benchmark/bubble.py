"""The bubble as it is: a schedule run over real processes by stages of known, equal cost.

Two kinds of stage:

- "compute" works: a stack of matrix products, one thread. Honest only with a core for each stage.
- "wait" stands in for work: it sleeps for a fixed time, forward and backward. That measures the
  schedule and its messages on any number of stages, and nothing about computing.

Dimensions: B batch, H hidden.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from shardlab.comm import World
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.pipeline.timeline import Span, bubble

BATCH, HIDDEN, DEPTH = 64, 512, 6


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
        return _Wait.apply(x + self.anchor, self.seconds)


def stage(kind: str, seconds: float) -> nn.Module:
    if kind == "wait":
        return Waiting(seconds)
    return nn.Sequential(*(nn.Linear(HIDDEN, HIDDEN) for _ in range(DEPTH)))


def measured(
    world: World, *, kind: str, schedule: str, microbatches: int, rounds: int, seconds: float = 0.01
) -> list[list[list[Span]]]:
    """Each round's timeline, all stages', on every rank; the first round is not counted."""
    module = stage(kind, seconds)
    actions = by_name(schedule, world.size, microbatches)
    x = torch.ones(BATCH, HIDDEN)
    timelines = []
    for _ in range(rounds + 1):
        spans: list[Span] = []
        module.zero_grad()
        world.whole.barrier()
        run(
            actions,
            module,
            [(x, x)] * microbatches,
            lambda y, _: y.square().mean(),
            axis=world.axis("pipeline", range(world.size)),
            shape=x.shape,
            record=spans,
        )
        timelines.append(_gathered(world, spans))
    return timelines[1:]


def _gathered(world: World, spans: list[Span]) -> list[list[Span]]:
    """Every stage's spans: the processes are of one host, so their clocks are one."""
    mine = torch.tensor([[s.start, s.end] for s in spans], dtype=torch.float64)
    every = world.whole.all_gather(mine[None])
    return [
        [Span(s.action, *times) for s, times in zip(spans, stage.tolist(), strict=True)]
        for stage in every
    ]


def bubbles(world: World, **settings: Any) -> list[float]:
    """The bubble of each round."""
    return [bubble(timeline) for timeline in measured(world, **settings)]
