"""A rank of the smoke stage: what each operation returns, beside the same reckoned on the CPU.

python -m costlab.gpu_report smoke_rank cuda|cpu [lose]
"""

import json
import os
import signal
from collections.abc import Callable

import torch
from torch import Tensor

from shardlab.comm import Axis, World

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64)
# Elements of a rank's piece. A sum of small whole numbers is exact in any of the dtypes.
LENGTHS = {"nccl": (3, 1 << 16, 1 << 22), "gloo": (3, 1 << 12, 1 << 18)}


def inputs(axis: Axis, length: int, dtype: torch.dtype) -> list[Tensor]:
    """Return every rank's tensor [n·length], on the CPU."""
    row = torch.arange(axis.size * length) % 5
    return [(row + rank % 3).to(dtype) for rank in range(axis.size)]


def ring(axis: Axis, x: Tensor) -> Tensor:
    """Give `x` to the rank after this one; return what came from the one before."""
    out = torch.empty_like(x)
    after, before = (axis.rank + 1) % axis.size, (axis.rank - 1) % axis.size
    for pending in axis.start_exchange([(x, after)], [(out, before)]):
        pending.wait()
    return out


def message(axis: Axis, x: Tensor) -> Tensor:
    """Send from rank 0 to the last; return what each has then."""
    if axis.rank == 0:
        axis.send(x, axis.size - 1)
    elif axis.rank == axis.size - 1:
        return axis.recv(torch.empty_like(x), 0)
    return x


Operation = tuple[Callable[[Axis, Tensor], Tensor], Callable[[list[Tensor], int], Tensor]]


def _piece(total: Tensor, n: int, r: int) -> Tensor:
    return total.chunk(n)[r]


# What is called, and what it must give: from every rank's tensor and this rank's place.
OPERATIONS: dict[str, Operation] = {
    "all_reduce": (lambda a, x: a.all_reduce(x), lambda every, r: torch.stack(every).sum(0)),
    "all_reduce max": (
        lambda a, x: a.all_reduce(x, op="max"), lambda every, r: torch.stack(every).amax(0)
    ),
    "all_reduce in place": (
        lambda a, x: a.all_reduce(y := x.clone(), out=y),
        lambda every, r: torch.stack(every).sum(0),
    ),
    "all_gather": (lambda a, x: a.all_gather(x), lambda every, r: torch.cat(every)),
    "reduce_scatter": (
        lambda a, x: a.reduce_scatter(x),
        lambda every, r: _piece(torch.stack(every).sum(0), len(every), r),
    ),
    "all_to_all": (
        lambda a, x: a.all_to_all(x),
        lambda every, r: torch.cat([_piece(tensor, len(every), r) for tensor in every]),
    ),
    "broadcast": (
        lambda a, x: a.broadcast(x, source=a.size - 1), lambda every, r: every[-1]
    ),
    "send and recv": (message, lambda every, r: every[0] if r == len(every) - 1 else every[r]),
    "exchange": (ring, lambda every, r: every[r - 1]),
}  # fmt: skip


def check(world: World, axis: Axis, name: str) -> None:
    """Print whether an operation gives its value for every dtype and size, and keeps its input."""
    call, expected = OPERATIONS[name]
    wrong, tried = [], 0
    for dtype in DTYPES:
        for length in LENGTHS[world.backend]:
            every = inputs(axis, length, dtype)
            x = every[axis.rank].to(world.device)
            try:
                result = call(axis, x)
            except Exception as error:  # of one dtype, say: the others are tried all the same
                wrong.append(f"{dtype} × {x.numel()}: {type(error).__name__}: {error}")
                continue
            tried += 1
            if not torch.equal(result.cpu(), expected(every, axis.rank).to(dtype)):
                wrong.append(f"{dtype} × {x.numel()}: another value")
            if not torch.equal(x.cpu(), every[axis.rank]):
                wrong.append(f"{dtype} × {x.numel()}: the input was changed")
    report(name, not wrong, "; ".join(wrong) or f"{tried} dtypes × sizes as reckoned on the CPU")


def report(name: str, good: bool, note: str) -> None:
    """Print a finding for the stage to read."""
    print("CHECKED " + json.dumps([name, good, " ".join(note.split())]), flush=True)


def main(device: str, what: str = "") -> None:
    """Check every operation; or lose the last rank in the middle of an all-reduce."""
    torch.set_num_threads(1)
    backend = "gloo" if device == "cpu" else None
    with World.join(backend=backend, timeout=20.0, share_gpus=True) as world:
        axis = world.axis("smoke", range(world.size))
        report(f"join: {world.backend} on {world.device.type}", device == world.device.type, "")
        if what == "lose":
            axis.all_reduce(torch.ones(1 << 20, device=world.device))
            if world.rank == world.size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            total = axis.all_reduce(torch.ones(1 << 20, device=world.device))
            print(float(total.sum()))  # waits for a GPU
            return
        for name in OPERATIONS if world.size > 1 else ["all_reduce"]:
            check(world, axis, name)
        axis.barrier()
        report("ended", True, "every rank")
