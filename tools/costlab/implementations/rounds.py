"""Contestants side by side, on a machine whose speed drifts.

Absolute times drift by 10 % within minutes; ratios of steps taken side by side repeat within a few
per cent. So all contestants live in the same processes, and:

- each is warmed up; the losses of their first steps must agree, or it is no comparison;
- a round runs each once, in an order drawn anew (the same on all ranks, seeded);
- before each step a barrier, and a step takes as long as its slowest rank;
- a round in which something else used the cores is dropped, and another one run (`watch`).
"""

import gc
import math
import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from costlab.record.noise import NoiseMonitor
from costlab.record.result import Load
from shardlab.comm import World

# One training step; returns its loss, or None on a rank that takes no part.
Step = Callable[[], float | None]
# build(world, **case): a context manager that gives the contestants by name, the same names in the
# same order on every rank.
Build = Callable[..., AbstractContextManager[Mapping[str, Step]]]


@dataclass(frozen=True)
class Rounds:
    """How long to measure.

    Args:
        seconds: of measuring; the number of rounds follows from it,
        least: but is at least this, or all rounds count, disturbed ones too,
        most: and at most this, not counting those that are dropped.
        warmup: untimed rounds, after the first step that compares losses.
        tolerance: relative, between the contestants' first losses.
    """

    seconds: float = 6.0
    least: int = 15
    most: int = 100
    warmup: int = 3
    tolerance: float = 1e-4


def measuring(
    world: World, steps: Mapping[str, Step], rounds: Rounds, order: random.Random, where: str = "",
    *, until: float = math.inf,
) -> Generator[str | Load, None, dict[str, list[float]]]:  # fmt: skip
    """Say after each round how far it is, and `where`; at last what else ran.

    When the clock says `until`, no more rounds follow (`noise.NoiseMonitor`).

    Returns:
        seconds of each step, the slowest rank's, by contestant, round by round.

    Raises:
        RuntimeError: the contestants' first losses differ.
    """
    agree({name: step() for name, step in steps.items()}, rounds.tolerance)
    yield f"{where}warmed up once"
    for _ in range(rounds.warmup):
        for step in steps.values():
            step()
    wanted, watch, times = 1, NoiseMonitor(world, until), {name: list[float]() for name in steps}
    while not watch.enough(wanted):
        gc.disable()
        try:
            with watch.round():
                for name in order.sample(list(steps), len(steps)):
                    times[name].append(seconds(world, steps[name]))
        finally:
            gc.enable()
        if watch.drawn == 1:  # the first round says how many the time allows
            elapsed = slowest(world, [sum(t[0] for t in times.values())])[0]
            wanted = max(rounds.least, min(rounds.most, int(rounds.seconds / elapsed)))
        yield where + watch.progress(wanted)
    yield watch.load(rounds.least)
    return {
        name: watch.select_clean(rounds.least, slowest(world, values))
        for name, values in times.items()
    }


def unsaid(step: Callable[[], object]) -> Step:
    """A step whose loss is not to be compared."""

    def silent() -> None:
        step()

    return silent


def seconds(world: World, step: Callable[[], object]) -> float:
    """This rank's time for a step that all begin together; on a GPU, to the end of its work."""
    world.whole.barrier()
    _finished(world.device)
    start = time.perf_counter()
    step()
    _finished(world.device)
    return time.perf_counter() - start


def slowest(world: World, values: Iterable[float]) -> list[float]:
    """The largest over the ranks, value by value."""
    local = torch.tensor(list(values), dtype=torch.float64, device=world.device)
    return [round(value, 7) for value in world.whole.all_reduce(local, op="max").tolist()]


def agree(losses: Mapping[str, float | None], tolerance: float) -> None:
    """Refuse a comparison of unlike things.

    Raises:
        RuntimeError: two losses differ by more than `tolerance`; names both.
    """
    finite = {name: loss for name, loss in losses.items() if loss is not None}
    if not finite:
        return
    first, expected = next(iter(finite.items()))
    for name, loss in finite.items():
        if abs(loss - expected) > tolerance * abs(expected):
            raise RuntimeError(
                f"{name} computes something else than {first}: loss {loss}, not {expected}"
            )


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
