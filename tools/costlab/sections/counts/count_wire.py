"""What gloo's collectives send: the kernel's count of the bytes that each rank's process wrote.

That count is the process' own, so whatever else speaks on the machine is not in it. Sockets are all
that a rank writes to meanwhile. Where there is no such count (it is Linux's), nothing is yielded.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from costlab.record.result import Metric
from costlab.sections.timed import counted
from shardlab.comm import World

COUNTER = Path("/proc/self/io")
PAYLOAD = 8 << 20


def written(world: World) -> Iterator[Metric]:
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
    shares = {name: _sent(world, call) for name, call in calls.items()}
    for name, share in shares.items():
        yield counted(f"wire.{name}.n{n}.sent", share, "ratio", how="measured", payload=PAYLOAD)
    for name in ("gloo", "axis"):
        halves = shares[f"{name}.reduce_scatter"] / shares["gloo.all_reduce"]
        yield counted(f"wire.{name}.n{n}.halves", halves, "ratio", how="measured")


def _sent(world: World, call: Callable[[], object]) -> float:
    """Return the bytes that a rank writes during one call, the mean, by bytes of payload."""
    axis = world.whole
    axis.barrier()
    before = _wrote()
    call()
    axis.barrier()  # what others still fetched of it is written too
    after = torch.tensor([_wrote() - before], dtype=torch.float64)
    return float(axis.all_reduce(after, op="mean")) / PAYLOAD


def _wrote() -> int:
    fields = dict(line.split(": ") for line in COUNTER.read_text().splitlines())
    return int(fields["wchar"])
