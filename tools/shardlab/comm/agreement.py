"""The check that all ranks bring the same thing to a collective, before the backend sees it.

gloo aborts the process when sizes differ and silently adds the bytes of one dtype to another's;
NCCL hangs. One small all-gather of each rank's intent turns all three into an error that says who
brought what. It costs one more latency a collective: `World.join(check=False)` leaves it out.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import torch
from torch import Tensor

from shardlab.comm.faults import CollectiveError

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DIMS = 8  # a tensor with more dimensions is described by its first eight and its element count
WIDTH = DIMS + 5


class Gathering(Protocol):
    """What the check needs of an axis."""

    name: str
    ranks: tuple[int, ...]
    size: int

    def gather_small(self, x: Tensor, out: Tensor) -> None:
        """All-gather with no check of its own."""


def header(x: Tensor, op: int = -1, detail: str = "") -> Tensor:
    """Describe a tensor in `WIDTH` int64: op, detail, dtype, dims, elements, shape."""
    dtype = DTYPES.index(x.dtype) if x.dtype in DTYPES else -1
    shape = list(x.shape[:DIMS]) + [0] * (DIMS - min(DIMS, x.dim()))
    return torch.tensor([op, zlib.crc32(detail.encode()), dtype, x.dim(), x.numel(), *shape])


def demand(axis: Gathering, op: str, x: Tensor, detail: str = "") -> None:
    """Gather every rank's intent; raise on each rank where any two differ.

    Raises:
        CollectiveError: names the collective and what each rank brought.
    """
    mine = header(x, COLLECTIVES.index(op), detail)
    all_of_them = torch.empty(axis.size * WIDTH, dtype=torch.int64)
    axis.gather_small(mine, all_of_them)
    rows = all_of_them.view(axis.size, WIDTH)
    if bool((rows == rows[0]).all()):
        return
    lines = [f"the ranks of the {axis.name} axis {list(axis.ranks)} disagree on what to do:"]
    lines += [f"  rank {r}: {_describe(row)}" for r, row in zip(axis.ranks, rows, strict=True)]
    lines.append("  Every rank must bring the same collective, shape and dtype.")
    raise CollectiveError("\n".join(lines))


def demand_same(axis: Gathering, said: str) -> None:
    """Gather what every rank says; raise on each rank unless it is the same.

    Raises:
        CollectiveError: names the ranks that say something else, and what this one says.
    """
    mine = torch.tensor([zlib.crc32(said.encode())])
    words = torch.empty(axis.size, dtype=mine.dtype)
    axis.gather_small(mine, words)
    others = [rank for rank, word in zip(axis.ranks, words, strict=True) if word != mine]
    if others:
        raise CollectiveError(
            f"the ranks of the {axis.name} axis {list(axis.ranks)} do different things, which "
            f"would meet as if they were the same: ranks {others} not what this one does, {said}"
        )


def _describe(row: Tensor) -> str:
    op, detail, dtype, dims, elements, *shape = (int(v) for v in row)
    name = str(DTYPES[dtype]).removeprefix("torch.") if dtype >= 0 else "another dtype"
    what = f"{COLLECTIVES[op]} of " if op >= 0 else ""
    extra = f" (option {detail:08x})" if detail else ""
    return f"{what}{name}{shape[:dims] if dims <= DIMS else f'[{elements} elements]'}{extra}"
