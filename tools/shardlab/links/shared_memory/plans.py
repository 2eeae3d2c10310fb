"""The collectives as two operations, put and take, on slots that every rank can read.

A rank puts values into its slot. When all ranks have done so, each takes what it needs from all
slots. There are two ways to put (the whole tensor; or N rows, one for each receiver) and two ways
to take (the sum of the N ranks' values; or their concatenation). That makes four collectives:

                     take the sum        take the concatenation
    put whole        all_reduce          all_gather
    put N rows       reduce_scatter      all_to_all

A tensor that doesn't fit into a slot takes several steps of some columns each. Every rank adds in
rank order, so all ranks get the same bits.

Dimension key: N ranks, K elements of a row, c of them (the columns) in one step.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shardlab.links.shared_memory.signature import encode
from shardlab.links.shared_memory.slots import Reduction, Slots, add, maximum


class Plan:
    """The steps of a collective of one kind, dtype and shape; used again for all such collectives.

    Args:
        slots: the slots of all ranks.
        name: the collective's name, one of `signature.COLLECTIVES`.
        x: a rank's input, of which only the dtype and the number of elements are used.
        source: the rank, on the axis, whose tensor is broadcast.

    Attributes:
        sources: the ranks whose puts a take needs.
        columns: elements of a row that is put or taken; `width` of them fit into a step.
        signature: kind, dtype and size of this rank's input, in one number.
        steps: the number of puts, and of takes.
    """

    in_rows = False  # whether a tensor is put as N rows, one for each receiver

    def __init__(self, slots: Slots, name: str, x: Tensor, source: int = 0) -> None:
        rows = slots.ranks if self.in_rows else 1
        self.slots = slots
        self.name = name
        self.source = source
        self.reduce: Reduction = maximum if name.endswith("max") else add
        self.columns = x.numel() // rows
        self.width = slots.bytes // x.itemsize // rows
        self._row = slots.me if self.in_rows else 0  # the row that is taken from each slot
        self.signature = encode(name, x.dtype, source) + x.numel()
        self.sources: Sequence[int] = [rank for rank in range(slots.ranks) if rank != slots.me]
        self.steps = max(1, -(-self.columns // self.width))

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Copy a step's part of contiguous `x` into this rank's slot."""
        part = x
        if self.steps > 1:
            part = self._columns_of_rows(x, step) if self.in_rows else self._columns_of_row(x, step)
        self.slots.views(part.dtype, 0, part.shape)[depth].rows[self.slots.me].copy_(part)

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Write a step's part of contiguous `out` from what all ranks have put."""
        raise NotImplementedError

    def _columns_of_row(self, tensor: Tensor, step: int) -> Tensor:
        """Return a step's columns [c] of a tensor that is one row."""
        return tensor.view(-1)[step * self.width : (step + 1) * self.width]

    def _columns_of_rows(self, tensor: Tensor, step: int) -> Tensor:
        """Return a step's columns [N, c] of a tensor that is N rows."""
        rows_NK = tensor.view(self.slots.ranks, self.columns)
        return rows_NK[:, step * self.width : (step + 1) * self.width]


class ReducePlan(Plan):
    """Takes the sum or maximum of all ranks' tensors, or of this rank's rows of them."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Reduce the ranks' parts."""
        part = out if self.steps == 1 else self._columns_of_row(out, step)
        start = self._row and self._row * part.numel()
        self.reduce(self.slots.views(part.dtype, start, part.shape)[depth].rows, part)


class ConcatenatePlan(Plan):
    """Takes the concatenation of all ranks' tensors, or of this rank's rows of them."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Concatenate the ranks' parts."""
        part_Nc = self._columns_of_rows(out, step)
        columns = part_Nc.shape[1:]
        start = self._row and self._row * columns.numel()
        part_Nc.copy_(self.slots.views(part_Nc.dtype, start, columns)[depth].stack)


class AllReduce(ReducePlan):
    """Every rank reduces all whole tensors."""


class AllGather(ConcatenatePlan):
    """Every rank concatenates all whole tensors."""


class ReduceScatter(ReducePlan):
    """Every rank reduces its row of all tensors."""

    in_rows = True


class AllToAll(ConcatenatePlan):
    """Every rank concatenates its row of all tensors."""

    in_rows = True


class Broadcast(Plan):
    """Every rank takes the source's tensor."""

    def __init__(self, slots: Slots, name: str, x: Tensor, source: int = 0) -> None:
        super().__init__(slots, name, x, source)
        self.sources = [] if source == slots.me else [source]

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Copy the source's part into its slot."""
        if self.slots.me == self.source:
            super().put(x, step, depth)

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Copy it from the source's slot, on the other ranks."""
        if self.slots.me != self.source:
            part = out if self.steps == 1 else self._columns_of_row(out, step)
            part.copy_(self.slots.views(part.dtype, 0, part.shape)[depth].rows[self.source])


class Barrier(Plan):
    """No values: a rank only waits until every rank has put."""

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Put nothing."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Take nothing."""
