"""Replicas, shards and stages counted: DDP's buckets, our shards, a pipeline's messages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from costlab.contestants import tutor
from costlab.record.result import Metric
from costlab.sections.counts.counted import counted
from shardlab.comm import Axis
from shardlab.fsdp import FSDP
from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.ledger import Ledger

if TYPE_CHECKING:
    from shardlab.comm import World

WIDTH, DEPTH = 32, 4


def replicas(world: World) -> Iterator[Metric]:
    """PyTorch's own DDP, in its third step, when its buckets are settled: a model a size."""
    config = tutor.config()
    tokens, targets = tutor.batch(torch.device("cpu"))
    model = GPT(config, tensor=Axis.alone())
    narrow = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)))
    x = torch.ones(2, WIDTH)
    for name, module in (("tutor", model), ("narrow", narrow)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations, of torch in torch
            wrapped = DistributedDataParallel(module)
        for _ in range(3):
            with Ledger() as ledger:
                if name == "tutor":
                    nn.functional.cross_entropy(
                        wrapped(tokens).flatten(0, 1), targets.t().flatten()
                    ).backward()  # type: ignore[no-untyped-call]
                else:
                    wrapped(x).sum().backward()
        reduced = ledger.total("all_reduce")
        yield counted(f"ddp.{name}.all_reduce", reduced.count, bytes=reduced.payload)


def shards(world: World) -> Iterator[Metric]:
    """Our sharded step against replicas; PyTorch's own are in count_fsdp."""
    x = torch.ones(2, WIDTH)
    for name, wrap_root in (("units", True), ("root", False)):
        whole = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
        payload = sum(p.nbytes for layer in whole for p in layer.parameters())
        model = nn.Sequential(*whole)
        # What no unit wraps is the root's, and stays whole from forward to backward.
        sharded = FSDP(model, world.whole, units=whole if wrap_root else whole[1:])
        for _ in range(2):
            with Ledger() as ledger:
                sharded(x).sum().backward()
        replicated = 2 * (world.size - 1) / world.size * payload
        yield counted(f"fsdp.{name}.wire-ratio", ledger.total().wire / replicated, "ratio")


def pipeline(world: World) -> Iterator[Metric]:
    """A message between two stages beside a tensor all-reduce, of the same micro-batch."""
    sequence, batch, hidden, microbatches = 8, 2, 16, 4
    config = GPTConfig(layers=2, hidden=hidden, heads=4, vocab=32, sequence=sequence)
    x = torch.ones(sequence, batch, hidden)
    stage = Block(config, "block", axis=Axis.alone())
    with Ledger() as piped:
        run(
            by_name("1f1b", world.size, microbatches), stage, [(x, x)] * microbatches,
            lambda y, _: y.square().mean(), axis=world.axis("pipeline", range(world.size)),
            shape=x.shape,
        )  # fmt: skip
    with Ledger() as tensor:
        Block(config, "block", axis=world.whole)(x.clone().requires_grad_()).sum().backward()
    sent, reduced = piped.total("send"), tensor.total("all_reduce")
    message = sent.payload / sent.count
    yield counted("pipeline.message", message, "B")
    yield counted("tensor.all-reduce", reduced.payload / reduced.count, "B")
    each = message / (reduced.payload / reduced.count)
    yield counted("pp-vs-tp.payload-ratio", each, "ratio")
    # A stage sends as much however many layers it has; a layer's all-reduces come again in each.
    step = sent.wire / (reduced.wire * microbatches)
    yield counted("pp-vs-tp.wire-ratio-a-layer", step, "ratio")
