"""A point: one operation of one size, over one link, in one mode; and the memory it works on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from costlab.sections import device_clock
from costlab.sections.collectives import operations
from costlab.sections.collectives.operations import ITEM, Operation, Pattern, elements
from shardlab.comm import World

MODES = ("blocking", "back-to-back", "enqueued")
TIMED_BY_EVENTS = ("cuda",)  # devices with a queue that tell the time in it
ENQUEUED = 20  # calls, as many as nccl-tests times
TRAIN = 16 << 20  # bytes of a train, about; it has 2 to 8 calls
SMALL, MIDDLING = 64 << 10, 1 << 20  # bytes: up to here a call is repeated within a visit


class VerificationError(Exception):
    """A collective that yields something else than it must."""


@dataclass
class Point:
    """What is measured: a call of an operation of a size, over a link, in a mode."""

    link: str
    operation: Operation
    size: int
    mode: str
    step: Callable[[int], float]  # of a turn: seconds of one call, on this rank
    slowest: list[list[float]] = field(default_factory=list)  # round by round
    fastest: list[list[float]] = field(default_factory=list)

    @property
    def visits(self) -> int:
        """Timed calls (or trains) within one round.

        The small ones cost little and vary most; the all-reduce is what most is made of.
        """
        many, some = (10, 4) if self.mode == "blocking" else (4, 2)
        few = 3 if self.operation.name == "all_reduce" else 1
        return many if self.size <= SMALL else some if self.size <= MIDDLING else few


class Buffers:
    """Two pools of memory, cut into slots for any size: x brings, y gets; and what fills them."""

    def __init__(self, largest: int, device: torch.device) -> None:
        self._x = torch.zeros(2 * largest, device=device).fill_(0)
        self._y = torch.zeros(2 * largest, device=device).fill_(0)
        self.pattern = Pattern(largest, device)

    def slots(self, operation: Operation, count: int, ranks: int) -> list[tuple[Tensor, Tensor]]:
        """Return slots for calls of `count` elements, as many as a train has."""
        brings, gets = operation.brings(count, ranks), operation.gets(count, ranks)
        number = max(2, min(8, TRAIN // (count * ITEM), len(self._x) // count))
        return [
            (self._x[i * count : i * count + brings], self._y[i * count : i * count + gets])
            for i in range(number)
        ]


def points_of(
    world: World, link: str, operation: Operation, size: int, buffers: Buffers
) -> tuple[list[Point], Callable[[], None]]:
    """Return the points of one operation and size, and what verifies its result."""
    count = elements(size, world.size)
    slots = buffers.slots(operation, count, world.size)
    call = operations.calls(world, link)[operation.name]
    start = operations.starts(world, link)[operation.name]
    finish = finishing(world.device)
    clock = time.perf_counter

    def blocking(turn: int) -> float:
        x, y = slots[turn % len(slots)]
        begin = clock()
        call(x, y)
        finish()
        return clock() - begin

    def back_to_back(_: int) -> float:
        begin = clock()
        works = [start(x, y) for x, y in slots]
        for started in works:
            for work in started:
                work.wait()
        finish()
        return (clock() - begin) / len(slots)

    def enqueued(_: int) -> float:
        def queue() -> None:
            for turn in range(ENQUEUED):
                call(*slots[turn % len(slots)])

        return device_clock.seconds(world.device, queue) / ENQUEUED

    def check() -> None:
        x, y = slots[0]
        buffers.pattern.fill(x, world.rank)
        call(x, y)
        finish()
        _verify(x, y, operation, buffers.pattern, world, of=f"{size} bytes over {link}")

    steps = zip(MODES, (blocking, back_to_back, enqueued), strict=True)
    return [Point(link, operation, size, mode, step) for mode, step in steps], check


def _verify(
    x: Tensor, y: Tensor, operation: Operation, pattern: Pattern, world: World, *, of: str
) -> None:
    """Hold what an operation made of a pattern against what it must, and wipe the pattern."""
    received = x if operation.in_place else y
    wrong = pattern.wrong(received, operation, world.rank, world.size)
    x.zero_()  # adding zeros in place, time after time, never leaves the range of floats
    if wrong:
        raise VerificationError(
            f"{operation.name} of {of}: {wrong} of {len(received)} elements differ from what "
            f"{world.size} ranks must make"
        )


def finishing(device: torch.device) -> Callable[[], None]:
    """Return what waits for a device: on the CPU a call that has returned is done."""
    if device.type == "cuda":
        return torch.cuda.synchronize
    return lambda: None
