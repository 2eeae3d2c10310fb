"""Pipelines counted: ours by their lists of actions, PyTorch's as they ran or as they plan to.

Each stage that runs notes its computes in the order in which the scheduler ran them, and how many
micro-batches' graphs were alive at once. The order is then played against a clock with equal
stages, so that no machine changes the bubble.

Dimensions: S sequence, B batch, H hidden.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleZBVZeroBubble,
)

from costlab.implementations.schedulers import stepped
from costlab.record.result import Metric
from costlab.sections.metrics import counted
from shardlab.comm import Axis, World
from shardlab.pipeline.action import Backward, Compute, Forward
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import Timeline, bubble, peak_live, simulate

S, B, H = 8, 2, 16
STAGES, CHUNKS = 4, 2
MICROBATCHES = (4, 8)  # PyTorch refuses 1F1B with fewer than there are stages
MANY = MICROBATCHES[-1]
WHERE = f"p{STAGES}.m{MANY}"
Run = Callable[[Axis, "Noting", int], None]


def schedules() -> Iterator[Metric]:
    """Play GPipe and 1F1B against a clock with equal stages: idle share, live micro-batches."""
    for microbatches in (2, MANY):
        for name in ("gpipe", "1f1b"):
            schedule = by_name(name, STAGES, microbatches)
            where = f"p{STAGES}.m{microbatches}"
            idle = bubble(simulate(schedule, forward=1, backward=2))
            yield counted(f"{name}.{where}.bubble", idle, "share")
            live = max(peak_live(actions) for actions in schedule)
            yield counted(f"{name}.{where}.live", live)


def schedulers(world: World) -> Iterator[Metric]:
    """Bubble and live micro-batches of PyTorch's schedulers; a stage a rank."""
    yield from ran(world, "torch-gpipe", _torch(ScheduleGPipe))
    yield from ran(world, "torch-1f1b", _torch(Schedule1F1B))


def beside_1f1b() -> Iterator[Metric]:
    """Idle time of ZB-H1 and of interleaving, of 1F1B's, where forward, B and W take as long."""
    plain, halved = (by_name(kind, STAGES, MANY) for kind in ("1f1b", "zb-h1"))
    once = simulate(plain, forward=1, backward=2)
    split = simulate(halved, forward=1, backward=1, weight=1)
    yield counted(f"zb-h1.{WHERE}.bubble", bubble(split), "share")
    yield counted(f"zb-h1.{WHERE}.idle-of-1f1b", idle(split) / idle(once), "ratio")
    for name, schedule in (("1f1b", plain), ("zb-h1", halved)):
        live = [peak_live(actions) for actions in schedule]
        yield counted(f"{name}.{WHERE}.live-fullest", max(live))
        yield counted(f"{name}.{WHERE}.live-last", live[-1])
    dealt = by_name("interleaved", STAGES, MANY, CHUNKS)
    pieces = simulate(dealt, forward=1 / CHUNKS, backward=2 / CHUNKS)
    yield counted(f"interleaved.{WHERE}.idle-of-1f1b", idle(pieces) / idle(once), "ratio")


def planned_by_torch(world: World) -> Iterator[Metric]:
    """PyTorch's ZBV, in the ticks of its plan: idle in a step, and between a stage's own ends."""
    places = (world.rank, 2 * STAGES - 1 - world.rank)
    device = torch.device("cpu")
    halves: list[Any] = [PipelineStage(nn.Linear(H, H), at, 2 * STAGES, device) for at in places]
    plan = ScheduleZBVZeroBubble(halves, MANY).pipeline_order.values()
    busy = [[tick for tick, action in enumerate(row) if action] for row in plan]
    whole = 1 + max(ticks[-1] for ticks in busy)
    share = 1 - sum(map(len, busy)) / (STAGES * whole)
    yield counted(f"torch-zbv.{WHERE}.bubble", share, "share")
    gaps = max(ticks[-1] - ticks[0] + 1 - len(ticks) for ticks in busy)
    yield counted(f"torch-zbv.{WHERE}.ticks-idle-within", gaps)


def idle(timeline: Timeline) -> float:
    """Return how long all stages together wait."""
    spans = [span for stage in timeline for span in stage]
    return max(s.end for s in spans) * len(timeline) - sum(s.end - s.start for s in spans)


class Noting(nn.Module):
    """A linear stage that notes its forwards and backwards, and how many graphs live at once.

    Attributes:
        order: of its computes.
        live: the most micro-batches whose backward was still to come when one began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(H, H)
        self.forget()

    def forget(self) -> None:
        """Begin a step."""
        self.order: list[Compute] = []
        self.live = 0
        self._alive: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply, noted forward and backward."""
        out: Tensor = self.linear(x)
        saved = _Saved(sum(isinstance(action, Forward) for action in self.order))
        self.order.append(Forward(saved.microbatch))
        self._alive.add(saved)
        self.live = max(self.live, len(self._alive))
        return _Noted.apply(out, saved, self.order)  # type: ignore[no-any-return,no-untyped-call]


class _Saved:
    """What a graph holds for one micro-batch: gone when the graph is."""

    def __init__(self, microbatch: int) -> None:
        self.microbatch = microbatch


class _Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, saved: _Saved, order: list[Compute]) -> Tensor:
        ctx.saved, ctx.order = saved, order
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.order.append(Backward(ctx.saved.microbatch))
        ctx.saved = None
        return grad.clone(), None, None


def ran(world: World, name: str, run: Run) -> Iterator[Metric]:
    """Bubble and live micro-batches of one scheduler, which runs a stage that notes."""
    axis = world.axis("pipeline", range(world.size))
    for microbatches in MICROBATCHES:
        stage = Noting()
        run(axis, stage, microbatches)
        where = f"{name}.p{world.size}.m{microbatches}"
        ended: list[tuple[list[Compute], int]] = [([], 0)] * world.size
        dist.all_gather_object(ended, (stage.order, stage.live))
        played = simulate([order for order, _ in ended], forward=1, backward=2)
        yield counted(f"{where}.bubble", bubble(played), "share")
        yield counted(f"{where}.live", max(live for _, live in ended))


def _torch(schedule: type[Any]) -> Run:
    def run(axis: Axis, stage: Noting, microbatches: int) -> None:
        place = PipelineStage(stage, axis.rank, axis.size, torch.device("cpu"), group=axis.group)
        x = torch.ones(B, H)
        plan = schedule(place, microbatches, lambda y, _: y.square().mean())
        step = stepped(plan, axis, stage, [(x, x)] * microbatches)
        for _ in range(2):  # the first step runs the stage once more, to learn its shapes
            stage.forget()
            step()

    return run
