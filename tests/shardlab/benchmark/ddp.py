"""One data-parallel training step of a GPT: ours and PyTorch's DistributedDataParallel.

4 layers, 4 heads, sequence 128, vocabulary 1,024, tied embeddings, fp32, batch 4 a rank: the
grammar tutor at hidden 128. A step is forward, loss, backward with the reduction, and SGD. All
train the same module (ours, on a tensor axis of one rank) from the same weights, and have the same
bucket sizes, so that what differs is the data parallelism alone.

"no reduction" is the same step with gradients left as they are: what is above it is the price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from shardlab.comm import Axis, World
from shardlab.data_parallel import DataParallel
from shardlab.model import GPT, GPTConfig
from tests.shardlab.benchmark.protocol import Step
from tests.shardlab.benchmark.table import Layout

BATCH, SEQUENCE, VOCAB, LAYERS, HEADS = 4, 128, 1024, 4, 4
BASE = "DDP"
HIDDEN = (64, 128, 256, 512, 1024)
LAYOUT = Layout(
    marker="data-parallel",
    key="hidden",
    row={"en": "hidden", "es": "hidden"},
    columns={
        "DDP": {"en": "DDP", "es": "DDP"},
        "DDP with bucket views": {"en": "DDP, bucket views", "es": "DDP, vistas del cubo"},
        "ours over gloo": {"en": "ours, gloo", "es": "lo nuestro, gloo"},
        "ours over shared memory": {
            "en": "ours, shared memory",
            "es": "lo nuestro, memoria compartida",
        },
        "no reduction": {"en": "no reduction", "es": "sin reducción"},
    },
)


@contextmanager
def build(world: World, *, hidden: int) -> Iterator[Mapping[str, Step]]:
    """The contestants at one size, on every rank."""
    config = GPTConfig(layers=LAYERS, hidden=hidden, heads=HEADS, vocab=VOCAB, sequence=SEQUENCE)
    generator = torch.Generator().manual_seed(world.rank)
    tokens = torch.randint(VOCAB, (BATCH, SEQUENCE), generator=generator)
    gloo, shared = (
        world.axis("data", range(world.size), link=link) for link in ("torch", "shared-memory")
    )
    yield {
        "DDP": ddp(config, tokens, world, views=False),
        "DDP with bucket views": ddp(config, tokens, world, views=True),
        "ours over gloo": ours(config, tokens, gloo),
        "ours over shared memory": ours(config, tokens, shared),
        "no reduction": training_step(GPT(config, tensor=Axis.alone()), tokens),
    }


def training_step(
    model: GPT, tokens: Tensor, forward: Callable[[Tensor], Tensor] | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Step:  # fmt: skip
    """Forward, loss, backward, what is left of the reduction, SGD: the same for all."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    targets, forward = tokens.roll(-1, 1), forward or model

    def step() -> float:
        optimizer.zero_grad()
        value = model.loss(forward(tokens), targets)
        value.backward()
        finish()
        optimizer.step()
        return value.item()

    return step


def ours(config: GPTConfig, tokens: Tensor, axis: Axis) -> Step:
    model = GPT(config, tensor=Axis.alone())
    replicas = DataParallel(model.named_parameters(), axis, start="verify")
    return training_step(model, tokens, finish=replicas.finish)


def ddp(config: GPTConfig, tokens: Tensor, world: World, *, views: bool) -> Step:
    model = GPT(config, tensor=Axis.alone())
    wrapped = DistributedDataParallel(
        model, process_group=world.whole.group, gradient_as_bucket_view=views
    )
    return training_step(model, tokens, wrapped)
