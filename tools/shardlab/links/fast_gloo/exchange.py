"""Collectives over gloo, made of exchanges: each rank sends every peer what it needs, all at once.

gloo's all-reduce goes round a ring: 2(n-1) messages one after another, whatever the size. Its
reduce-scatter is the same all-reduce, of whose result most is thrown away. Its all-gather writes
into a buffer of its own and copies that. An exchange (gloo's all-to-all) is one message to each
peer, and all of them travel at the same time. So:

    all_reduce       sends the whole tensor to every peer and sums locally: one latency instead of
                     2(n-1), but n/2 times the bytes; used for small tensors
    all_gather       sends the whole tensor to every peer, directly into the output
    reduce_scatter   sends one row to each peer and sums locally: half of the ring's bytes

`CHOICES` says which algorithm is used for which size. (A large all-reduce made of a reduce-scatter
and an all-gather was tried. It took 0.8 to 1.2 times as long as gloo's ring, which overlaps the two
halves piece by piece. It isn't used, since its second phase would have to start inside `wait`.)

Every dtype works: gloo's unsupported dtypes are sent as bytes. Sums are added in rank order, so all
ranks that add the same values get the same bits.

Dimension key: N ranks, P peers (N - 1), K elements of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_KIB, _ANY = 1 << 10, float("inf")

# For each collective and number of ranks, in order: (largest size of x in bytes, algorithm). For
# larger tensors gloo's collective is used. "single" is one exchange of n copies or rows, including
# this rank's; "by-peer" is one exchange with each peer, which needs no copies.
# Measured on two cores over loopback by interleaved repeats; to measure it again:
# `tools/bench kernels all-gather reduce-scatter` (two ranks). A number of ranks
# that was not measured uses the next larger measured one; more than the largest use gloo's.
CHOICES: dict[str, dict[int, Sequence[tuple[float, str]]]] = {
    "all_reduce": {
        2: [(128 * _KIB, "single")],
        4: [(256 * _KIB, "single")],
        8: [(64 * _KIB, "single")],
    },
    "all_gather": {
        2: [(_ANY, "by-peer")],
        4: [(64 * _KIB, "single"), (_ANY, "by-peer")],
        8: [(64 * _KIB, "single"), (_ANY, "by-peer")],
    },
    "reduce_scatter": {
        2: [(_ANY, "by-peer")],
        4: [(_ANY, "single")],
        8: [(_ANY, "single")],
    },
}
# The dtypes that gloo's all-to-all supports.
_CARRIED = frozenset({
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool,
})  # fmt: skip
_CHUNK = 64 << 10  # elements added at a time, so that a sum of many rows stays in the cache


@dataclass(eq=False, slots=True)
class ExchangeWork:
    """An exchange that was started, and what to do after it.

    Args:
        works: gloo's works.
        keep: tensors that must stay alive until the works are done.
        finish: called once all works are done; None for nothing.
    """

    _works: list[Any]
    _keep: Sequence[Tensor]
    _finish: Callable[[], None] | None = None

    def wait(self) -> None:
        """Block until the result is complete; idempotent."""
        while self._works:
            self._works[0].wait()
            self._works.pop(0)
        finish, self._finish, self._keep = self._finish, None, ()
        if finish is not None:
            finish()


def choose_algorithm(collective: str, size: int, nbytes: int) -> str:
    """Return the algorithm for a collective: "single", "by-peer", or "" for gloo's own.

    Args:
        collective: all_reduce, all_gather or reduce_scatter.
        size: the number of ranks.
        nbytes: bytes of each rank's input.
    """
    table = CHOICES[collective]
    measured = min((ranks for ranks in table if ranks >= size), default=0)
    for limit, algorithm in table.get(measured, ()):
        if nbytes <= limit:
            return algorithm
    return ""


def is_faster(collective: str, x: Tensor, size: int) -> bool:
    """Return whether an exchange is faster than gloo's `collective` of `x` among `size` ranks."""
    return x.is_cpu and choose_algorithm(collective, size, x.nbytes) != ""


def start_all_reduce(group: Any, x: Tensor, out: Tensor, op: str) -> ExchangeWork:
    """Start an all-reduce of contiguous `x` into `out`, which may be `x`; "mean" only adds.

    Args:
        group: torch's process group on gloo.
        x: any shape, the same on every rank.
        out: contiguous, of the shape of `x`.
        op: sum, mean or max.
    """
    size, rank, local_K = group.size(), group.rank(), x.view(-1)
    copies_PK = local_K.expand(size - 1, -1).contiguous()  # with two ranks `x` itself, no copy
    received_PK = torch.empty_like(copies_PK)
    sent, received = _as_carried(copies_PK), _as_carried(received_PK)
    splits = [0 if peer == rank else sent.numel() // (size - 1) for peer in range(size)]
    work = group.alltoall_base(received, sent, splits, splits)
    rows = list(received_PK.unbind())
    # With more ranks, `x` may be `out` and be overwritten before it is added; its copy is not.
    rows.insert(rank, local_K if size == 2 else copies_PK[0])
    return ExchangeWork([work], [copies_PK], lambda: reduce_rows(rows, out.view(-1), op))


def start_all_gather(group: Any, x: Tensor, out: Tensor, op: str = "") -> ExchangeWork:
    """Start an all-gather of contiguous `x` [k, …] into contiguous `out` [n·k, …]; ignores `op`."""
    size, rank, local_K = group.size(), group.rank(), x.view(-1)
    out_NK = out.view(size, local_K.numel())
    if choose_algorithm("all_gather", size, x.nbytes) == "single":
        copies_NK = local_K.expand(size, -1).contiguous()
        work = group.alltoall_base(_as_carried(out_NK), _as_carried(copies_NK), [], [])
        return ExchangeWork([work], [copies_NK])
    works = _exchange_by_peer(group, [local_K] * size, list(out_NK.unbind()))
    out_NK[rank].copy_(local_K)
    return ExchangeWork(works, [x])


def start_reduce_scatter(group: Any, x: Tensor, out: Tensor, op: str) -> ExchangeWork:
    """Start a reduce-scatter of contiguous `x` [n·k, …] into contiguous `out` [k, …].

    Args:
        group: torch's process group on gloo.
        x: a row for each rank.
        out: receives this rank's row of the sum or maximum; "mean" only adds.
        op: sum, mean or max.
    """
    size, rank = group.size(), group.rank()
    x_NK = x.view(size, out.numel())
    received_NK = torch.empty_like(x_NK)
    rows = list(received_NK.unbind())
    if choose_algorithm("reduce_scatter", size, x.nbytes) == "single":
        works = [group.alltoall_base(_as_carried(received_NK), _as_carried(x_NK), [], [])]
    else:
        works = _exchange_by_peer(group, list(x_NK.unbind()), rows)
        rows[rank] = x_NK[rank]
    return ExchangeWork(works, [x], lambda: reduce_rows(rows, out.view(-1), op))


STARTS = {
    "all_reduce": start_all_reduce,
    "all_gather": start_all_gather,
    "reduce_scatter": start_reduce_scatter,
}


def _exchange_by_peer(group: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Any]:
    """Send `inputs[peer]` to each peer and receive `outputs[peer]`, in one exchange a distance."""
    size, rank = group.size(), group.rank()
    works = []
    for distance in range(1, size):
        target, source = (rank + distance) % size, (rank - distance) % size
        sent, received = _as_carried(inputs[target]), _as_carried(outputs[source])
        send_splits, receive_splits = [0] * size, [0] * size
        send_splits[target], receive_splits[source] = sent.numel(), received.numel()
        works.append(group.alltoall_base(received, sent, receive_splits, send_splits))
    return works


def reduce_rows(rows: Sequence[Tensor], out: Tensor, op: str) -> None:
    """Write the sum or maximum of rows [K] into `out` [K], in their order; `out` may be a row."""
    combine = torch.maximum if op == "max" else torch.add
    chunk = _CHUNK if len(rows) > 2 else max(1, out.numel())
    for begin in range(0, out.numel(), chunk):
        first, second, *rest = (row[begin : begin + chunk] for row in rows)
        result = out[begin : begin + chunk]
        combine(first, second, out=result)
        for row in rest:
            combine(result, row, out=result)


def _as_carried(x: Tensor) -> Tensor:
    """Return `x`, flat, in a dtype that gloo's all-to-all supports."""
    return x.view(-1) if x.dtype in _CARRIED else x.view(-1).view(torch.uint8)
