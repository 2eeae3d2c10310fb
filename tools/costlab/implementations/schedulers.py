"""1F1B beside torch.distributed.pipelining and megatron-core; and 1F1B beside zero bubble.

Each contestant runs forward and backward of all micro-batches over an untied GPT stage of ours with
the same weights, so that what differs is the pipeline alone. Zero bubble, ours and torch's, runs on
such stages too, and on stages that wait in place of work. torch has no ZB-H1: its
ScheduleInterleavedZeroBubble is interleaved 1F1B in two, here with one chunk a stage.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleavedZeroBubble

from costlab.implementations import bubble, tutor
from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.gpt.model import GPT
from shardlab.layers.linear import ColumnParallelLinear
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name

BASE = "megatron-core"
HIDDEN, SECONDS = 512, 0.01  # of the stages of 1F1B beside zero bubble
Data = list[tuple[Tensor, Tensor]]


class Work(NamedTuple):
    """What one rank runs.

    Attributes:
        stage: this rank's part of the model.
        data: inputs and targets of each micro-batch.
        loss: of the last stage's output and the targets.
        shape: of what a stage sends to the next.
    """

    stage: nn.Module
    data: Data
    loss: Callable[[Tensor, Tensor], Tensor]
    shape: tuple[int, ...]


@contextmanager
def build(world: World, *, hidden: int, microbatches: int = 8) -> Iterator[dict[str, Step]]:
    """The contestants on a pipeline over all ranks."""
    axis, data = world.axis("pipeline", range(world.size)), batches(world.device, microbatches)

    from costlab.implementations import megatron as mcore  # here, since it takes seconds

    with ExitStack() as stack:
        with world.device:  # while it is set up; a step under it would be slower
            stack.enter_context(mcore.megatron(pipeline=world.size))
        yield {
            "ours": ours(axis, "1f1b", gpt_work(world, hidden, data)),
            "torch pipelining": torchs(axis, "1f1b", gpt_work(world, hidden, data)),
            BASE: _megatrons(stage_of(world, hidden), data),
        }


def mean(losses: list[Tensor]) -> float | None:
    """The step's loss, on the stage that has any."""
    return float(torch.stack(losses).mean()) if losses else None


def stage_of(world: World, hidden: int) -> GPT:
    """This rank's part of the tutor, untied."""
    config = replace(tutor.config(hidden), tie_embeddings=False)
    return GPT(
        config, tensor=Axis.alone(), stage=world.rank, stages=world.size, device=world.device
    )


def gpt_work(world: World, hidden: int, data: Data) -> Work:
    """Return this rank's part of the tutor, with the loss of its own."""
    stage = stage_of(world, hidden)
    return Work(stage, data, stage.loss, stage.hidden_shape(1, tutor.SEQUENCE))


def batches(device: torch.device, microbatches: int) -> Data:
    """(tokens, targets) [1, S] of each micro-batch."""
    generator = torch.Generator().manual_seed(1)
    size = (2, microbatches, 1, tutor.SEQUENCE)
    tokens = torch.randint(tutor.VOCAB, size, generator=generator).to(device)
    return list(zip(*tokens, strict=True))


def ours(axis: Axis, kind: str, work: Work) -> Step:
    """Return a step of one of our schedules."""
    stage, data, loss = work.stage, work.data, work.loss
    schedule = by_name(kind, axis.size, len(data))

    def step() -> float | None:
        stage.zero_grad()
        return mean(run(schedule, stage, data, loss, axis=axis, shape=work.shape))

    return step


def torchs(axis: Axis, kind: str, work: Work) -> Step:
    """Return a step of one of PyTorch's schedules, "1f1b" or "zero bubble"."""
    device = work.data[0][0].device
    place = PipelineStage(work.stage, axis.rank, axis.size, device, group=axis.group)
    schedule: Any = (
        Schedule1F1B(place, len(work.data), work.loss)
        if kind == "1f1b"
        else ScheduleInterleavedZeroBubble([place], len(work.data), work.loss)
    )
    return stepped(schedule, axis, work.stage, work.data)


def stepped(schedule: Any, axis: Axis, stage: nn.Module, data: Data) -> Step:
    """Return a step of one of PyTorch's schedules."""
    inputs, targets = (torch.cat(xs) for xs in zip(*data, strict=True))
    first, last = axis.rank == 0, axis.rank == axis.size - 1

    def step() -> float | None:
        stage.zero_grad()
        losses: list[Tensor] = []
        schedule.step(
            *[inputs] * first, target=targets if last else None, losses=losses,
            return_outputs=False,
        )  # fmt: skip
        return mean(losses)

    return step


def _megatrons(stage: GPT, data: Data) -> Step:
    from costlab.implementations import megatron as mcore
    from costlab.implementations.megatron.gpt import MegatronStage
    from costlab.implementations.megatron.gpt import step as megatron_step

    config = mcore.config(hidden=stage.config.hidden, dtype=torch.float32)
    config.deallocate_pipeline_outputs = True  # as its training script sets it
    config.batch_p2p_sync = False
    model = MegatronStage(stage, config)

    def step() -> float | None:
        stage.zero_grad()
        return mean(megatron_step([model], data, stage.loss, tutor.SEQUENCE, 1))

    return step


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
    data = batches(world.device, microbatches)
    yield _contestants(world, lambda: gpt_work(world, HIDDEN, data))


@contextmanager
def waiting(world: World, *, microbatches: int) -> Iterator[dict[str, Step]]:
    """Contestants on stages that wait: forward, backward and weight gradient equally long."""
    x_BH = torch.ones(bubble.BATCH, bubble.HIDDEN)
    data = [(x_BH, x_BH)] * microbatches
    yield _contestants(world, lambda: Work(WaitingApart(SECONDS), data, mean_square, x_BH.shape))


def _contestants(world: World, work: Callable[[], Work]) -> dict[str, Step]:
    axis = world.axis("pipeline", range(world.size))
    return {
        "1f1b": ours(axis, "1f1b", work()),
        "zb-h1": ours(axis, "zb-h1", work()),
        "torch, 1f1b": torchs(axis, "1f1b", work()),
        "torch, zero bubble": torchs(axis, "zero bubble", work()),
    }
