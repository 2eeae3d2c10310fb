"""The six operations: what each moves and must yield, its speed, and what carries it.

Sizes and speeds are those of nccl-tests: an operation's size is the larger of what a rank brings
and what it gets; algbw is that size over time; busbw is algbw times a factor that makes it the
speed of one rank's link, whatever the number of ranks. An operation is carried by

gloo, nccl      torch's own functions, over the backend that the world runs on
axis            shardlab's Axis over that backend, which goes its own ways on gloo
shared-memory   shardlab's Axis over the memory of one host

Dimension key: K elements of the operation's size, N ranks, k = K/N.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.comm.torch_link import ALL_GATHER, REDUCE_SCATTER
from shardlab.proofs.collective import SENT

ITEM = 4  # bytes of an element: fp32
_PART = 1 << 18  # elements compared at a time, while they are in the cache


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        name: as torch calls it.
        in_place: its result replaces its input.
        cut_in: a rank brings K/N elements, not K.
        cut_out: a rank gets K/N elements, not K.
    """

    name: str
    in_place: bool = False
    cut_in: bool = False
    cut_out: bool = False

    def brings(self, elements: int, ranks: int) -> int:
        """Return the number of elements that a rank brings."""
        return elements // ranks if self.cut_in else elements

    def gets(self, elements: int, ranks: int) -> int:
        """Return the number of elements that a rank gets."""
        return elements // ranks if self.cut_out else elements

    def bus_factor(self, ranks: int) -> Fraction:
        """Return busbw over algbw: the share of its size that crosses a rank's link each way."""
        numerator, behind = SENT[self.name.removesuffix("_recv")]
        return Fraction(numerator * ranks - behind, ranks)


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("all_reduce", in_place=True),
        Operation("all_gather", cut_in=True),
        Operation("reduce_scatter", cut_out=True),
        Operation("all_to_all"),
        Operation("broadcast", in_place=True),
        Operation("send_recv"),
    )
}


def elements(size: int, ranks: int) -> int:
    """Return how many elements stand for `size` bytes: a multiple of the number of ranks."""
    return max(1, size // ITEM // ranks) * ranks


class Pattern:
    """What ranks bring, so that what they get can be told: exact in fp32 even when added up.

    Rank r brings (i mod 61)(r + 1) + r at place i, so ranks and places tell themselves apart.

    Args:
        count: the most elements that are asked for.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._ramp = torch.arange(61, device=device).float().repeat(-(-count // 61))

    def fill(self, x: Tensor, rank: int) -> None:
        """Write what `rank` brings into x [K] or [k]."""
        torch.mul(self._ramp[: len(x)], rank + 1, out=x)
        x += rank

    def wrong(self, y: Tensor, operation: Operation, rank: int, ranks: int) -> int:
        """Return how many elements of y [K] or [k], which `rank` got, are not what they must be."""
        count = len(y) * ranks if operation.cut_out else len(y)
        piece = count // ranks
        gathered = operation.name in ("all_gather", "all_to_all")
        mismatches = 0
        for place, part in enumerate(torch.split(y, piece) if gathered else [y]):
            factor, shift = self._brought(operation, place, rank, ranks)
            begin = rank * piece if operation.name in ("all_to_all", "reduce_scatter") else 0
            for first in range(0, len(part), _PART):
                chunk = part[first : first + _PART]
                ramp = self._ramp[begin + first : begin + first + len(chunk)]
                right = ramp * factor + shift
                if not torch.equal(chunk, right):
                    mismatches += int((chunk != right).sum())
        return mismatches

    @staticmethod
    def _brought(operation: Operation, place: int, rank: int, ranks: int) -> tuple[int, int]:
        """Return (a, b) of the values (i mod 61)a + b that must stand in a part."""
        if operation.name in ("all_reduce", "reduce_scatter"):
            return ranks * (ranks + 1) // 2, ranks * (ranks - 1) // 2
        if operation.name == "send_recv":
            place = (rank - 1) % ranks
        return place + 1, place  # a broadcast's only part is rank 0's


# start(x, y): bring x, get y (or x itself, if it works in place)
Start = Callable[[Tensor, Tensor], Sequence[Any]]
TORCHS: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda x, y, **how: dist.all_reduce(x, **how),
    "all_gather": lambda x, y, **how: ALL_GATHER(y, x, **how),
    "reduce_scatter": lambda x, y, **how: REDUCE_SCATTER(y, x, **how),
    "all_to_all": lambda x, y, **how: dist.all_to_all_single(y, x, **how),
    "broadcast": lambda x, y, **how: dist.broadcast(x, 0, **how),
}


def links(world: World) -> tuple[str, ...]:
    """Return the links that this world's ranks have, one host's or several hosts'."""
    if world.device.type == "cuda":
        return ("nccl",)
    return ("gloo", "shared-memory") if world.failure_reporter.all_on_this_host() else ("gloo",)


def starts(world: World, link: str) -> dict[str, Start]:
    """Return how each operation is started over `link`, by its name."""
    if link in ("gloo", "nccl"):
        return _torch(world.rank, world.size)
    kind = None if link == "axis" else link
    return _axis(world.axis("bench", range(world.size), link=kind))


def calls(world: World, link: str) -> dict[str, Callable[[Tensor, Tensor], object]]:
    """Return how each operation is called where its result is needed at once."""
    waited = {name: _waited(start) for name, start in starts(world, link).items()}
    return waited | (TORCHS if link in ("gloo", "nccl") else {})


def _waited(start: Start) -> Callable[[Tensor, Tensor], object]:
    def call(x: Tensor, y: Tensor) -> None:
        for work in start(x, y):
            work.wait()

    return call


def _torch(rank: int, size: int) -> dict[str, Start]:
    following, previous = (rank + 1) % size, (rank - 1) % size

    def send_recv(x: Tensor, y: Tensor) -> Sequence[Any]:
        ends = [dist.P2POp(dist.irecv, y, previous), dist.P2POp(dist.isend, x, following)]
        return dist.batch_isend_irecv(ends)

    begun: dict[str, Start] = {
        name: lambda x, y, call=call: [call(x, y, async_op=True)]  # type: ignore[misc]
        for name, call in TORCHS.items()
    }
    return begun | {"send_recv": send_recv}


def _axis(axis: Axis) -> dict[str, Start]:
    following, previous = (axis.rank + 1) % axis.size, (axis.rank - 1) % axis.size
    return {
        "all_reduce": lambda x, y: [axis.start("all_reduce", x, out=x)],
        "all_gather": lambda x, y: [axis.start("all_gather", x, out=y)],
        "reduce_scatter": lambda x, y: [axis.start("reduce_scatter", x, out=y)],
        "all_to_all": lambda x, y: [axis.start("all_to_all", x, out=y)],
        "broadcast": lambda x, y: [axis.start("broadcast", x, out=x)],
        "send_recv": lambda x, y: axis.start_exchange([(x, following)], [(y, previous)]),
    }
