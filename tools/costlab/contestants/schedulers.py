"""1F1B beside torch.distributed.pipelining and megatron-core, and zero bubble beside 1F1B.

Each contestant runs forward and backward of all micro-batches over an untied GPT stage of ours with
the same weights, so that what differs is the pipeline alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleavedZeroBubble,
)

from costlab.contestants import bubble, tutor
from costlab.contestants.rounds import Step
from shardlab.comm import Axis, World
from shardlab.gpt.model import GPT
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name

BASE = "megatron-core"
Data = list[tuple[Tensor, Tensor]]


@contextmanager
def build(
    world: World, *, hidden: int, microbatches: int = 8, batch: int = 1
) -> Iterator[dict[str, Step]]:
    """The contestants on a pipeline over all ranks; `batch` sequences a micro-batch."""
    axis, data = world.axis("pipeline", range(world.size)), _data(world.device, microbatches, batch)
    stage = partial(_stage, world, hidden)

    from costlab.contestants import megatron as mcore  # here, since it takes seconds

    with ExitStack() as stack:
        with world.device:  # while it is set up; a step under it would be slower
            stack.enter_context(mcore.megatron(pipeline=world.size))
        yield {
            "ours": _ours(axis, stage(), data, batch),
            "torch pipelining": _torchs(axis, stage(), data, world.device),
            BASE: _megatrons(stage(), data, batch),
        }


@contextmanager
def zero_bubble(
    world: World, *, microbatches: int, hidden: int = 512, batch: int = 1
) -> Iterator[dict[str, Step]]:
    """1F1B and zero bubble, ours and torch's, on stages that compute.

    torch has no ZB-H1: its ScheduleInterleavedZeroBubble is interleaved 1F1B in two, here with one
    chunk a stage.
    """
    axis, data = world.axis("pipeline", range(world.size)), _data(world.device, microbatches, batch)
    stage = partial(_stage, world, hidden)

    yield {
        "1f1b": _ours(axis, stage(), data, batch),
        "zb-h1": _ours(axis, stage(), data, batch, "zb-h1"),
        "torch, 1f1b": _torchs(axis, stage(), data, world.device),
        "torch, zero bubble": _torchs(
            axis, stage(), data, world.device, ScheduleInterleavedZeroBubble
        ),
    }


@contextmanager
def waiting(world: World, *, microbatches: int, seconds: float = 0.01) -> Iterator[dict[str, Step]]:
    """The same of stages that wait in place of work, as long for weights as for all."""
    axis, x_BH = world.axis("pipeline", range(world.size)), torch.ones(bubble.BATCH, bubble.HIDDEN)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return y.square().mean()

    def ours(kind: str) -> Step:
        stage = bubble.stage("wait apart", seconds)
        actions, data = by_name(kind, axis.size, microbatches), [(x_BH, x_BH)] * microbatches
        return lambda: _mean(run(actions, stage, data, loss, axis=axis, shape=x_BH.shape))

    def torchs(kind: Any) -> Step:
        stage = bubble.stage("wait apart", seconds)
        place = PipelineStage(stage, axis.rank, axis.size, world.device, group=axis.group)
        schedule = _of(kind, place, microbatches, loss)
        whole = x_BH.repeat(microbatches, 1)
        inputs, target = [whole] * (axis.rank == 0), whole if axis.rank == axis.size - 1 else None
        losses: list[Tensor] = []

        def step() -> float | None:
            losses.clear()
            schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
            return _mean(losses)

        return step

    yield {
        "1f1b": ours("1f1b"),
        "zb-h1": ours("zb-h1"),
        "torch, 1f1b": torchs(Schedule1F1B),
        "torch, zero bubble": torchs(ScheduleInterleavedZeroBubble),
    }


def _mean(losses: list[Tensor]) -> float | None:
    return float(torch.stack(losses).mean()) if losses else None


def _of(kind: Any, place: PipelineStage, microbatches: int, loss: Any) -> Any:
    """A scheduler of torch's; those made for several chunks a stage take a list."""
    return kind(place if kind is Schedule1F1B else [place], microbatches, loss)


def _stage(world: World, hidden: int) -> GPT:
    config = replace(tutor.config(hidden), tie_embeddings=False)
    return GPT(
        config, tensor=Axis.alone(), stage=world.rank, stages=world.size, device=world.device
    )


def _data(device: torch.device, microbatches: int, batch: int) -> Data:
    """(tokens, targets) [B, S] of each micro-batch."""
    generator = torch.Generator().manual_seed(1)
    size = (2, microbatches, batch, tutor.SEQUENCE)
    tokens = torch.randint(tutor.VOCAB, size, generator=generator).to(device)
    return list(zip(*tokens, strict=True))


def _ours(axis: Axis, stage: GPT, data: Data, batch: int, kind: str = "1f1b") -> Step:
    schedule = by_name(kind, axis.size, len(data))
    shape = stage.hidden_shape(batch, tutor.SEQUENCE)

    def step() -> float | None:
        stage.zero_grad()
        return _mean(run(schedule, stage, data, stage.loss, axis=axis, shape=shape))

    return step


def _torchs(
    axis: Axis, stage: GPT, data: Data, device: torch.device, kind: Any = Schedule1F1B
) -> Step:
    def loss(logits_SBV: Tensor, targets_BS: Tensor) -> Tensor:
        return stage.loss(logits_SBV, targets_BS)

    place = PipelineStage(stage, axis.rank, axis.size, device, group=axis.group)
    schedule = _of(kind, place, len(data), loss)
    inputs, targets = (torch.cat(xs) for xs in zip(*data, strict=True))
    first, last = axis.rank == 0, axis.rank == axis.size - 1

    def step() -> float | None:
        stage.zero_grad()
        losses: list[Tensor] = []
        schedule.step(
            *[inputs] * first,
            target=targets if last else None,
            losses=losses if last else None,
            return_outputs=False,
        )
        return _mean(losses)

    return step


def _megatrons(stage: GPT, data: Data, batch: int) -> Step:
    from costlab.contestants import megatron as mcore
    from costlab.contestants.megatron.stage import MegatronStage, forward_step

    config = mcore.config(hidden=stage.config.hidden, dtype=torch.float32)
    config.deallocate_pipeline_outputs = True  # as its training script sets it
    config.batch_p2p_sync = False
    model = MegatronStage(stage, config)

    def step() -> float | None:
        stage.zero_grad()
        losses = mcore.schedules.forward_backward_pipelining_without_interleaving(
            forward_step_func=forward_step(stage.loss),
            data_iterator=iter(data),
            model=model,
            num_microbatches=len(data),
            seq_length=tutor.SEQUENCE,
            micro_batch_size=batch,
        )
        return float(torch.stack([x["loss"] for x in losses]).mean()) if losses else None

    return step
