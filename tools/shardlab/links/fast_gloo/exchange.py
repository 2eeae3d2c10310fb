"""Collectives over gloo, made of exchanges: each rank sends every other one what it needs, at once.

gloo's all-reduce goes round a ring: 2(n-1) messages one after another, whatever the size. Its
reduce-scatter is that same all-reduce with most of the result thrown away; its all-gather writes
into a buffer of its own and copies. An exchange (gloo's all-to-all) is one message to each peer,
all under way together. So:

    all_reduce       the whole tensor to every peer, and a local sum: one latency instead of
                     2(n-1), but n/2 times the bytes; for small tensors
    all_gather       the whole tensor to every peer, straight to where it belongs
    reduce_scatter   a row to each peer, and a local sum: half of the bytes of the ring

`CHOICES` says what is used where. (A large all-reduce as reduce-scatter and all-gather was tried:
0.8 to 1.2 of the time of gloo's ring, which overlaps the two halves piece by piece; not worth a
second phase that would have to start inside `wait`.)

Any dtype does: what gloo doesn't carry goes as bytes. Sums are added in rank order, so all ranks
that add the same values get the same bits.

Dimension key: N ranks, P peers (N - 1), K elements of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_KIB, _ANY = 1 << 10, float("inf")

# For each collective and number of ranks, in order: (up to how many bytes of x, how). Past the last
# entry gloo's own is used. "together" is one exchange of n copies or rows, the rank's own
# included; "singly" one exchange for each peer, which copies nothing beforehand.
# Found on two cores over loopback by interleaved repeats; to measure it again:
# `pytest -m benchmark -s tests/shardlab/benchmark/test_benchmark_collectives.py`. Numbers of ranks
# that were not measured use the next larger one that was; more than the largest use gloo's own.
CHOICES: dict[str, dict[int, Sequence[tuple[float, str]]]] = {
    "all_reduce": {
        2: [(128 * _KIB, "together")],
        4: [(256 * _KIB, "together")],
        8: [(64 * _KIB, "together")],
    },
    "all_gather": {
        2: [(_ANY, "singly")],
        4: [(64 * _KIB, "together"), (_ANY, "singly")],
        8: [(64 * _KIB, "together"), (_ANY, "singly")],
    },
    "reduce_scatter": {
        2: [(_ANY, "singly")],
        4: [(_ANY, "together")],
        8: [(_ANY, "together")],
    },
}
# What gloo's all-to-all takes as it is.
_CARRIED = frozenset({
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool,
})  # fmt: skip
_PART = 64 << 10  # elements added at a time, so that a sum of many rows stays in the cache


@dataclass(eq=False, slots=True)
class ExchangeWork:
    """Messages under way, and what is to be done when they have come.

    Args:
        works: gloo's.
        keep: tensors that must live until then.
        finish: called once all are there.
    """

    _works: list[Any]
    _keep: Sequence[Tensor]
    _finish: Callable[[], None] | None = None

    def wait(self) -> None:
        """Block until the messages have come and the result is made; idempotent."""
        while self._works:
            self._works[0].wait()
            self._works.pop(0)
        finish, self._finish, self._keep = self._finish, None, ()
        if finish is not None:
            finish()


def choice(collective: str, size: int, nbytes: int) -> str:
    """Return how `collective` goes among `size` ranks: "together", "singly", or "" for gloo's own.

    Args:
        collective: all_reduce, all_gather or reduce_scatter.
        size: the number of ranks.
        nbytes: of the tensor that each rank brings.
    """
    table = CHOICES[collective]
    measured = min((ranks for ranks in table if ranks >= size), default=0)
    for limit, how in table.get(measured, ()):
        if nbytes <= limit:
            return how
    return ""


def suits(collective: str, x: Tensor, size: int) -> bool:
    """Whether an exchange beats gloo's own `collective` of `x` among `size` ranks."""
    return x.is_cpu and choice(collective, size, x.nbytes) != ""


def start_all_reduce(group: Any, x: Tensor, out: Tensor, op: str) -> ExchangeWork:
    """Start an all-reduce of contiguous `x` into `out`, which may be `x`; "mean" only adds.

    Args:
        group: torch's process group on gloo.
        x: any shape, the same on every rank.
        out: contiguous, of the shape of `x`.
        op: sum, mean or max.
    """
    size, rank, own_K = group.size(), group.rank(), x.view(-1)
    copies_PK = own_K.expand(size - 1, -1).contiguous()  # of two ranks: `x` itself, not copied
    came_PK = torch.empty_like(copies_PK)
    sent, came = _sent(copies_PK), _sent(came_PK)
    splits = [0 if peer == rank else sent.numel() // (size - 1) for peer in range(size)]
    work = group.alltoall_base(came, sent, splits, splits)
    rows = list(came_PK.unbind())
    # Of more ranks `x` may be overwritten, as `out`, before it is added: its copy never is.
    rows.insert(rank, own_K if size == 2 else copies_PK[0])
    return ExchangeWork([work], [copies_PK], lambda: join(rows, out.view(-1), op))


def start_all_gather(group: Any, x: Tensor, out: Tensor, op: str = "") -> ExchangeWork:
    """Start an all-gather of contiguous `x` [k, …] into contiguous `out` [n·k, …]; no op."""
    size, rank, own_K = group.size(), group.rank(), x.view(-1)
    out_NK = out.view(size, own_K.numel())
    if choice("all_gather", size, x.nbytes) == "together":
        copies_NK = own_K.expand(size, -1).contiguous()
        work = group.alltoall_base(_sent(out_NK), _sent(copies_NK), [], [])
        return ExchangeWork([work], [copies_NK])
    works = _singly(group, [own_K] * size, list(out_NK.unbind()))
    out_NK[rank].copy_(own_K)
    return ExchangeWork(works, [x])


def start_reduce_scatter(group: Any, x: Tensor, out: Tensor, op: str) -> ExchangeWork:
    """Start a reduce-scatter of contiguous `x` [n·k, …] into contiguous `out` [k, …].

    Args:
        group: torch's process group on gloo.
        x: a row for each rank.
        out: this rank's row, reduced; "mean" only adds.
        op: sum, mean or max.
    """
    size, rank = group.size(), group.rank()
    x_NK = x.view(size, out.numel())
    came_NK = torch.empty_like(x_NK)
    rows = list(came_NK.unbind())
    if choice("reduce_scatter", size, x.nbytes) == "together":
        works = [group.alltoall_base(_sent(came_NK), _sent(x_NK), [], [])]
    else:
        works = _singly(group, list(x_NK.unbind()), rows)
        rows[rank] = x_NK[rank]
    return ExchangeWork(works, [x], lambda: join(rows, out.view(-1), op))


STARTS = {
    "all_reduce": start_all_reduce,
    "all_gather": start_all_gather,
    "reduce_scatter": start_reduce_scatter,
}


def _singly(group: Any, to: Sequence[Tensor], out_of: Sequence[Tensor]) -> list[Any]:
    """Send `to[peer]` to each peer and receive `out_of[peer]`, one exchange a pair of peers."""
    size, rank = group.size(), group.rank()
    works = []
    for distance in range(1, size):
        target, source = (rank + distance) % size, (rank - distance) % size
        sent, came = _sent(to[target]), _sent(out_of[source])
        given, taken = [0] * size, [0] * size
        given[target], taken[source] = sent.numel(), came.numel()
        works.append(group.alltoall_base(came, sent, taken, given))
    return works


def join(rows: Sequence[Tensor], out: Tensor, op: str) -> None:
    """Write the sum (or maximum) of rows [K] into `out` [K], in their order; `out` may be one."""
    join = torch.maximum if op == "max" else torch.add
    part = _PART if len(rows) > 2 else max(1, out.numel())
    for begin in range(0, out.numel(), part):
        first, second, *rest = (row[begin : begin + part] for row in rows)
        into = out[begin : begin + part]
        join(first, second, out=into)
        for row in rest:
            join(into, row, out=into)


def _sent(x: Tensor) -> Tensor:
    """Return `x` as something that gloo's all-to-all carries."""
    return x.view(-1) if x.dtype in _CARRIED else x.view(-1).view(torch.uint8)
