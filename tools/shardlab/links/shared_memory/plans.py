"""The collectives as two moves over slots that every rank can read.

A rank puts values into its slot; when all have, each takes what it needs out of everyone's. There
are two ways to put (the tensor as it is; or cut into N rows, one a receiver) and two ways to take
(add up what the N ranks put; or set it side by side), which makes four collectives:

                     taken as a sum      taken side by side
    put whole        all_reduce          all_gather
    put in N rows    reduce_scatter      all_to_all

What doesn't fit into a slot goes in steps of some columns each. Every rank adds in rank order, so
all get the same bits.

Dimension key: N ranks, K elements of a row, c of them (the columns) in one step.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shardlab.links.shared_memory.slots import Join, Slots


class Plan:
    """How a collective of one kind, dtype and shape goes; made once for all that are alike.

    Args:
        slots: what it goes through.
        name: of the collective, as `signature` knows it.
        columns: how many elements a row has that is put or taken.
        width: how many of them fit into one step.
        signature: what this rank brings, in one word.

    Attributes:
        awaits: the ranks whose put a take needs.
        steps: how many puts and takes it is.
    """

    def __init__(
        self, slots: Slots, *, name: str, columns: int, width: int, signature: int
    ) -> None:
        self.slots = slots
        self.name = name
        self.columns = columns
        self.width = width
        self.signature = signature
        self.awaits: Sequence[int] = [rank for rank in range(slots.ranks) if rank != slots.me]
        self.steps = max(1, -(-columns // width))

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Copy a step's part of contiguous `x` into this rank's slot."""
        part = x if self.steps == 1 else self._of_row(x, step)
        self.slots.at(part.dtype, 0, part.shape)[depth].rows[self.slots.me].copy_(part)

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Write a step's part of contiguous `out` from what all ranks have put."""
        raise NotImplementedError

    def _of_row(self, tensor: Tensor, step: int) -> Tensor:
        """Return a step's columns [c] of a tensor that is one row."""
        return tensor.view(-1)[step * self.width : (step + 1) * self.width]

    def _of_rows(self, tensor: Tensor, step: int) -> Tensor:
        """Return a step's columns [N, c] of a tensor that is N rows."""
        rows_NK = tensor.view(self.slots.ranks, self.columns)
        return rows_NK[:, step * self.width : (step + 1) * self.width]


class AllReduce(Plan):
    """Everyone's whole tensor, joined by everyone."""

    join: Join  # adds, or takes the maximum

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Join the ranks' parts."""
        part = out if self.steps == 1 else self._of_row(out, step)
        self.join(self.slots.at(part.dtype, 0, part.shape)[depth].rows, part)


class AllGather(Plan):
    """Everyone's whole tensor, side by side."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Set the ranks' parts side by side."""
        part_Nc = self._of_rows(out, step)
        part_Nc.copy_(self.slots.at(part_Nc.dtype, 0, part_Nc.shape[1:])[depth].stack)


class InRows(Plan):
    """What is put in N rows, one a receiver."""

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Copy a step's columns of all rows into the slot."""
        part = x if self.steps == 1 else self._of_rows(x, step)
        self.slots.at(part.dtype, 0, part.shape)[depth].rows[self.slots.me].copy_(part)


class ReduceScatter(InRows):
    """This rank's row of everyone's tensor, joined."""

    join: Join

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Join the ranks' parts of this rank's row."""
        part = out if self.steps == 1 else self._of_row(out, step)
        start = self.slots.me * part.numel()
        self.join(self.slots.at(part.dtype, start, part.shape)[depth].rows, part)


class AllToAll(InRows):
    """This rank's row of everyone's tensor, side by side."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Set the ranks' parts of this rank's row side by side."""
        part_Nc = self._of_rows(out, step)
        columns = part_Nc.shape[1:]
        start = self.slots.me * columns.numel()
        part_Nc.copy_(self.slots.at(part_Nc.dtype, start, columns)[depth].stack)


class Broadcast(Plan):
    """One rank's tensor, to everyone."""

    source: int

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Copy the source's part."""
        if self.slots.me == self.source:
            super().put(x, step, depth)

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Copy it out elsewhere."""
        if self.slots.me != self.source:
            part = out if self.steps == 1 else self._of_row(out, step)
            part.copy_(self.slots.at(part.dtype, 0, part.shape)[depth].rows[self.source])


class Barrier(Plan):
    """No values at all: only that everyone has come."""

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Put nothing."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Take nothing."""
