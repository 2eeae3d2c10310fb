"""1F1B beside torch.distributed.pipelining and megatron-core: the same stage, three schedulers.

Each contestant runs forward and backward of all micro-batches over an untied GPT stage of ours with
the same weights, so that what differs is the pipeline alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from shardlab.comm import Axis, World
from shardlab.model import GPT, GPTConfig
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from tests.shardlab import megatron as mcore
from tests.shardlab.benchmark.protocol import Step
from tests.shardlab.benchmark.table import Layout
from tests.shardlab.megatron_stage import MegatronStage, forward_step

VOCAB, SEQUENCE = 1024, 128
HIDDEN = (64, 128, 256, 512)
BASE = "megatron-core"
LAYOUT = Layout(
    marker="pipeline",
    key="hidden",
    row={"en": "hidden", "es": "hidden"},
    columns={
        "megatron-core": {"en": "megatron-core", "es": "megatron-core"},
        "torch pipelining": {"en": "torch pipelining", "es": "torch pipelining"},
        "ours": {"en": "ours", "es": "lo nuestro"},
    },
)
Data = list[tuple[Tensor, Tensor]]


@contextmanager
def build(
    world: World, *, hidden: int, microbatches: int = 8, layers: int = 4, batch: int = 1
) -> Iterator[dict[str, Step]]:
    """The contestants on a pipeline over all ranks; `batch` sequences a micro-batch."""
    axis = world.axis("pipeline", range(world.size))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (2, microbatches, batch, SEQUENCE), generator=generator)
    data = list(zip(*tokens, strict=True))
    config = GPTConfig(
        layers=layers, hidden=hidden, heads=4, vocab=VOCAB, sequence=SEQUENCE, tie_embeddings=False
    )

    def stage() -> GPT:
        return GPT(config, tensor=Axis.alone(), stage=world.rank, stages=world.size)

    with mcore.megatron(pipeline=world.size):
        yield {
            "ours": _ours(axis, stage(), data, batch),
            "torch pipelining": _torchs(axis, stage(), data, batch),
            BASE: _megatrons(axis, stage(), data, batch),
        }


def _ours(axis: Axis, stage: GPT, data: Data, batch: int) -> Step:
    schedule = by_name("1f1b", axis.size, len(data))
    shape = stage.hidden_shape(batch, SEQUENCE)

    def step() -> float | None:
        stage.zero_grad()
        losses = run(schedule, stage, data, stage.loss, axis=axis, shape=shape)
        return float(torch.stack(losses).mean()) if losses else None

    return step


def _torchs(axis: Axis, stage: GPT, data: Data, batch: int) -> Step:
    def loss(logits_SBV: Tensor, targets_BS: Tensor) -> Tensor:
        return stage.loss(logits_SBV, targets_BS)

    place = PipelineStage(stage, axis.rank, axis.size, torch.device("cpu"), group=axis.group)
    schedule = Schedule1F1B(place, len(data), loss)
    inputs, targets = (torch.cat(xs) for xs in zip(*data, strict=True))
    first, last = axis.rank == 0, axis.rank == axis.size - 1

    def step() -> float | None:
        stage.zero_grad()
        losses: list[Tensor] = []
        schedule.step(
            *[inputs] * first,
            return_outputs=False,
            **{"target": targets, "losses": losses} if last else {},
        )
        return float(torch.stack(losses).mean()) if losses else None

    return step


def _megatrons(axis: Axis, stage: GPT, data: Data, batch: int) -> Step:
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
            seq_length=SEQUENCE,
            micro_batch_size=batch,
        )
        return float(torch.stack([x["loss"] for x in losses]).mean()) if losses else None

    return step
