"""What gloo's collectives put on the wire: the loopback interface's own counters.

The kernel counts what passes; so does everything else that speaks over loopback just then. The
payload is large and the least of a few repeats is taken. Where there are no such counters (they are
Linux's), nothing is yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from costlab.record.result import Metric
from costlab.sections.counts.counted import counted

if TYPE_CHECKING:
    from shardlab.comm import World

COUNTER = Path("/sys/class/net/lo/statistics/tx_bytes")
PAYLOAD = 8 << 20
REPEATS = 3


def loopback(world: World) -> Iterator[Metric]:
    """Bytes a rank sends, by payload: gloo's all-reduce, its reduce-scatter, and ours."""
    if not COUNTER.is_file():
        return
    n, axis = world.size, world.whole
    x = torch.ones(PAYLOAD // 4)
    piece = torch.empty(PAYLOAD // 4 // n)
    calls: dict[str, Callable[[], object]] = {
        "gloo.all_reduce": lambda: dist.all_reduce(x.clone(), group=axis.group),
        "gloo.reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, x, group=axis.group),
        "axis.reduce_scatter": lambda: axis.reduce_scatter(x),
    }
    shares = {name: min(_sent(world, call) for _ in range(REPEATS)) for name, call in calls.items()}
    for name, share in shares.items():
        yield counted(f"wire.{name}.n{n}.sent", share, "ratio", how="measured", payload=PAYLOAD)
    for name in ("gloo", "axis"):
        halves = shares[f"{name}.reduce_scatter"] / shares["gloo.all_reduce"]
        yield counted(f"wire.{name}.n{n}.halves", halves, "ratio", how="measured")


def _sent(world: World, call: Callable[[], object]) -> float:
    """Return the bytes on loopback during one call, a rank and a byte of payload."""
    axis = world.whole
    axis.barrier()
    before = int(COUNTER.read_text())
    axis.barrier()
    call()
    axis.barrier()
    after = torch.tensor([int(COUNTER.read_text()) - before], dtype=torch.float64)
    return float(axis.all_reduce(after, op="mean")) / (world.size * PAYLOAD)
