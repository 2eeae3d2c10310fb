"""A step over a long sequence on two ranks, beside the same step on one, a thread each.

`--quick` runs a small part of it, once, and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.gpt.model import GPT, GPTConfig
from tests.shardlab.benchmark import protocol, table

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

GOAL, SEQUENCE, BASE = 0.65, 4096, "one process"
KINDS = ("ring", "all-gather", "ulysses")
LAYOUT = table.Layout(
    marker="long-sequences",
    key="sequence",
    row={"en": "tokens", "es": "tokens"},
    columns={
        BASE: {"en": "one process", "es": "un proceso"},
        "ring": {"en": "ring", "es": "anillo"},
        "all-gather": {"en": "all-gather", "es": "all-gather"},
        "ulysses": {"en": "Ulysses", "es": "Ulysses"},
    },
)


@contextmanager
def build(world: World, *, sequence: int, hidden: int = 128) -> Iterator[dict[str, Step]]:
    """Forward and backward of a GPT: on the first rank alone, and on all of them, each kind."""
    generator = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(256, (2, 1, sequence), generator=generator)
    config = GPTConfig(layers=2, hidden=hidden, heads=4, vocab=256, sequence=sequence)

    def model(context: ContextParallel | None = None) -> GPT:
        return GPT(config, tensor=Axis.alone(), context=context)

    def on(context: ContextParallel) -> Step:
        cut, shard, wanted = model(context), context.shard(tokens), context.shard(targets)

        def step() -> float:
            cut.zero_grad()
            loss = cut.loss(cut(shard), wanted)
            loss.backward()
            return float(world.whole.all_reduce(loss.detach()[None], op="mean")[0])

        return step

    whole = model()

    def alone() -> float | None:
        if world.rank:
            return None
        whole.zero_grad()
        loss = whole.loss(whole(tokens), targets)
        loss.backward()
        return float(loss.detach())

    yield {BASE: alone} | {kind: on(ContextParallel(world.whole, kind)) for kind in KINDS}


def test_two_ranks_take_less_than_two_thirds_of_the_step_of_one(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan()
    sizes = [512] if quick else [1024, SEQUENCE]
    cases = protocol.compare(build, [{"sequence": size} for size in sizes], ranks=2, plan=plan)
    result = protocol.record(LAYOUT.marker, BASE, cases, plan)
    print(f"\n{table.render(result, LAYOUT, 'en')}")
    if quick:
        return
    table.publish(result, LAYOUT)
    missed = {kind: ratio for kind in KINDS if (ratio := cases[-1].ratio(kind, BASE)) > GOAL}
    assert not missed, f"of one process's step, the goal is {GOAL}: {missed}"
