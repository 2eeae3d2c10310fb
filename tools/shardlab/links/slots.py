"""The collectives over shared memory: each rank puts into its slot, and takes from all slots.

A rank puts its whole tensor, or N rows, one for each receiver. Once all ranks have done so, it
takes the sum of what they have put, or the concatenation:

                     take the sum        take the concatenation
    put whole        all_reduce          all_gather
    put N rows       reduce_scatter      all_to_all

Dimension key: N ranks, D slots of a rank, K elements of a row, c of them (the columns) in a step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shardlab.comm.pending import CollectiveError
from shardlab.links.mapped_file import DEPTH, Region
from shardlab.links.transfers import Lane, Steps, describe, encode, fence

WHOLE_BYTES = 64 << 10  # up to this size each of more than two ranks adds the whole tensor
_MAX_VIEWS = 1000  # in the cache


class _Views(NamedTuple):
    """One slot of every rank, in the dtype and shape that a step needs.

    Attributes:
        local: this rank's slot, in the shape of the input.
        rows: of each rank's slot the row for this rank, in the shape of the output.
        stack: the same as one tensor [N, c].
    """

    local: Tensor
    rows: tuple[Tensor, ...]
    stack: Tensor


Take = Callable[[_Views, Tensor], object]
"""A function that fills some columns of a collective's output from the slots of all ranks."""


class Slots(Lane):
    """The collectives of a link, on the slots of all ranks.

    Step s uses slot s mod DEPTH. It may be taken once every rank has posted s + 1 steps, and put
    once every rank has taken s + 1 - DEPTH. With two slots the second condition nearly always holds
    already, so a step costs one wait for the peers.
    """

    def __init__(self, region: Region, ranks: tuple[int, ...], me: int) -> None:
        super().__init__(region.words)
        self._slots_NDB = region.slots
        self._ranks, self._size, self._me = ranks, len(ranks), me
        self._peers = [peer for peer in range(self._size) if peer != me]
        self._posted = [region.posted_word(rank) for rank in range(self._size)]
        self._taken = [region.taken_word(rank) for rank in range(self._size)]
        self._step = 0  # every rank takes the same steps
        self._cache: dict[Any, tuple[_Views, ...]] = {}

    def barrier(self) -> Steps:
        """Wait for every rank."""
        empty = torch.empty(0, dtype=torch.uint8)
        return self._steps("barrier", empty, empty, lambda *_: None)

    def all_reduce(self, x: Tensor, out: Tensor, op: str) -> Steps:
        """Add in rank order, so that all ranks get the same bits."""
        if self._size > 2 and x.nbytes > WHOLE_BYTES:
            return self._all_reduce_in_parts(x.view(-1), out.view(-1), op)
        return self._steps(f"all_reduce {op}", x, out, _REDUCTIONS[op])

    def _all_reduce_in_parts(self, x_K: Tensor, out_K: Tensor, op: str) -> Steps:
        """Let each rank add one part and get the others, while a slot's values are in the cache.

        The elements left over by an even division, fewer than there are ranks, are added as a
        whole.
        """
        even = x_K.numel() // self._size * self._size
        width = self._slots_NDB.shape[2] // x_K.itemsize // self._size * self._size
        for begin in range(0, even, width):
            end = min(begin + width, even)
            x_Nc, out_Nc = (t[begin:end].view(self._size, -1) for t in (x_K, out_K))
            part_c = out_Nc[self._me]
            yield from self.reduce_scatter(x_Nc, part_c, op)
            yield from self.all_gather(part_c, out_Nc)
        if even < x_K.numel():
            yield from self.all_reduce(x_K[even:], out_K[even:], op)

    def reduce_scatter(self, x: Tensor, out: Tensor, op: str) -> Steps:
        """Add this rank's rows, in rank order."""
        return self._steps(f"reduce_scatter {op}", x, out, _REDUCTIONS[op], rows=self._size)

    def all_gather(self, x: Tensor, out: Tensor) -> Steps:
        """Concatenate the ranks' tensors."""
        return self._steps("all_gather", x, out.view(self._size, x.numel()), _stack)

    def all_to_all(self, x: Tensor, out: Tensor) -> Steps:
        """Concatenate the ranks' rows for this rank."""
        out_NK = out.view(self._size, x.numel() // self._size)
        return self._steps("all_to_all", x, out_NK, _stack, rows=self._size)

    def broadcast(self, out: Tensor, source: int) -> Steps:
        """Take the tensor of rank `source`."""

        def take(views: _Views, out_c: Tensor) -> None:
            if source != self._me:
                out_c.copy_(views.rows[source])

        return self._steps("broadcast", out, out, take, source=source)

    def _steps(
        self, name: str, x: Tensor, out: Tensor, take: Take, *, rows: int = 1,
        source: int | None = None,
    ) -> Steps:  # fmt: skip
        """Put the `rows` of the input and take the output, some columns of each row in a step.

        If `source` is given, only that rank puts.
        """
        words, me = self.words, self._me
        columns = x.numel() // rows
        signature = encode(name, x.dtype, source or 0) + x.numel()
        width = self._slots_NDB.shape[2] // x.itemsize // rows
        needed = self._peers if source is None else [source] * (source != me)
        for begin in range(0, max(1, columns), width):
            part, out_part, step = x, out, self._step
            if columns > width:
                part = x.view(rows, columns)[:, begin : begin + width]
                out_part = out.view(-1, columns)[:, begin : begin + width]
            depth = step % DEPTH
            row = out_part.shape[1:] if take is _stack else out_part.shape
            views = self._views(x.dtype, rows, part.shape, row)[depth]
            for peer in self._peers:
                if words[self._taken[peer]] <= step - DEPTH:
                    yield peer, self._taken[peer], step - DEPTH + 1
            if source is None or source == me:
                views.local.copy_(part)
            words[self._posted[me] + 1 + depth] = signature
            fence()
            words[self._posted[me]] = step + 1
            for peer in needed:
                if words[self._posted[peer]] <= step:
                    yield peer, self._posted[peer], step + 1
            fence()
            for peer in needed:
                if words[self._posted[peer] + 1 + depth] != signature:
                    raise self._mismatch_error(signature, needed, depth)
            take(views, out_part)
            fence()
            self._step = step + 1
            words[self._taken[me]] = step + 1

    def _views(
        self, dtype: torch.dtype, rows: int, local: torch.Size, row: torch.Size
    ) -> tuple[_Views, ...]:
        """Return the views of each slot; cached, since making one costs as much as a copy."""
        key = (dtype, rows, local, row)
        if key not in self._cache:
            if len(self._cache) >= _MAX_VIEWS:
                self._cache.clear()
            slots_NDC = self._slots_NDB.view(dtype)
            columns = local.numel() // rows
            begin = self._me * columns if rows > 1 else 0
            taken_NDc = slots_NDC[:, :, begin : begin + columns]
            self._cache[key] = tuple(
                _Views(
                    slots_NDC[self._me, depth, : local.numel()].view(local),
                    taken_NDc[:, depth].view(self._size, *row).unbind(),
                    taken_NDc[:, depth],
                )
                for depth in range(DEPTH)
            )
        return self._cache[key]

    def _mismatch_error(self, signature: int, needed: list[int], depth: int) -> CollectiveError:
        signatures = {self._me: signature}
        signatures |= {peer: self.words[self._posted[peer] + 1 + depth] for peer in needed}
        lines = [f"ranks {list(self._ranks)} disagree on what to do over shared memory:"]
        lines += [f"  rank {self._ranks[r]}: {describe(s)}" for r, s in sorted(signatures.items())]
        return CollectiveError("\n".join(lines))


def _reduce(combine: Callable[..., object], views: _Views, out: Tensor) -> None:
    first, second, *rest = views.rows
    combine(first, second, out=out)
    for row in rest:
        combine(out, row, out=out)


def _stack(views: _Views, out_Nc: Tensor) -> None:
    out_Nc.copy_(views.stack)


_REDUCTIONS: dict[str, Take] = {
    "sum": partial(_reduce, torch.add), "max": partial(_reduce, torch.maximum),
}  # fmt: skip
