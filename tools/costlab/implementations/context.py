"""Forward and backward of a GPT over one long sequence: by one rank, and by all in each kind."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.gpt.model import GPT, GPTConfig

KINDS = ("ring", "all-gather", "ulysses")


@contextmanager
def build(world: World, *, sequence: int, hidden: int = 128) -> Iterator[Mapping[str, Step]]:
    """The contestants at one length, on every rank."""
    generator = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(256, (2, 1, sequence), generator=generator)
    config = GPTConfig(layers=2, hidden=hidden, heads=4, vocab=256, sequence=sequence)

    def sharded(context: ContextParallel) -> Step:
        model = GPT(config, tensor=Axis.alone(), context=context)
        shard, wanted = context.shard(tokens), context.shard(targets)

        def step() -> float:
            model.zero_grad()
            loss = model.loss(model(shard), wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            return float(world.whole.all_reduce(loss.detach()[None], op="mean")[0])

        return step

    whole = GPT(config, tensor=Axis.alone())

    def alone() -> float | None:
        if world.rank:
            return None
        whole.zero_grad()
        loss = whole.loss(whole(tokens), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    kinds = {kind: sharded(ContextParallel(world.whole, kind)) for kind in KINDS}
    yield {"one process": alone} | kinds
