"""Compares the bench's own loop with a bare loop over torch.distributed.

Both run in the same processes, call by call in an order drawn anew, so that what the machine does
in between hits both. The bench's goes through what `collectives` does for a call: the slot, the
clock, the wait; the bare one is `dist.all_reduce(x)`. What is judged is the median of the rounds'
ratios: a round runs both within a moment of each other.
"""

import random
import statistics
import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.run import launch
from costlab.sections.collectives.operations import OPERATIONS, elements
from costlab.sections.collectives.point import Buffers, points_of
from shardlab.comm import World

SIZES = (1 << 20, 4 << 20, 16 << 20)
ROUNDS, LAUNCHES = 1000, 3
LIMIT = 1.02


def measure_side_by_side(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Yield the seconds of a call in both loops, by size."""
    operation = OPERATIONS["all_reduce"]
    order = random.Random(settings.seed)
    for size in settings.sizes:
        buffers = Buffers(elements(size, world.size), world.device)
        (point, *_), check = points_of(world, "gloo", operation, size, buffers)
        check()
        slots = buffers.slots(operation, elements(size, world.size), world.size)
        inputs = [x for x, _ in slots]
        assert torch.equal(inputs[0], torch.zeros_like(inputs[0]))

        loops = {
            "bench": point.step,
            "bare": lambda turn, inputs=inputs: dist.all_reduce(inputs[turn % 2]),
        }
        ratios = []
        for turn in range(ROUNDS * SIZES[0] // size + 100):
            seconds = {}
            for name in order.sample(list(loops), 2):
                call = loops[name]
                world.whole.barrier()
                begin = time.perf_counter()
                call(turn)
                seconds[name] = time.perf_counter() - begin
            ratios.append(seconds["bench"] / seconds["bare"])
        ratio = statistics.median(ratios)
        yield Metric(id=f"overhead.{size}", value=ratio, unit="ratio", samples=len(ratios))
        yield f"{size}"


@pytest.mark.benchmark
def test_the_benchs_loop_costs_within_two_per_cent_of_a_bare_one() -> None:
    ratios: dict[str, list[float]] = {}
    for seed in range(LAUNCHES):
        for metric in launch.run(measure_side_by_side, Settings(sizes=SIZES, seed=seed), ranks=2):
            ratios.setdefault(metric.id, []).append(metric.value)
    for name, values in ratios.items():
        print(f"{name}: {', '.join(f'{value:.3f}' for value in values)}")
    assert {name: m for name, v in ratios.items() if (m := statistics.median(v)) > LIMIT} == {}
