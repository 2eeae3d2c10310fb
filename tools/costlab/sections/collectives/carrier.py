"""What carries an operation: torch.distributed as users call it, or one of shardlab's axes.

gloo, nccl      torch's own functions, over the backend that the world runs on
axis            shardlab's Axis over that backend, which goes its own ways on gloo
shared-memory   shardlab's Axis over the memory of one host
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.comm.torch_link import ALL_GATHER, REDUCE_SCATTER

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
