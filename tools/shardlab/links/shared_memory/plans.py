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

from shardlab.links.shared_memory.signature import stem
from shardlab.links.shared_memory.slots import Join, Slots, add, maximum


class Plan:
    """How a collective of one kind, dtype and shape goes; made once for all that are alike.

    Args:
        slots: what it goes through.
        name: of the collective, as `signature` knows it.
        x: what a rank brings; its dtype and length are what counts.
        source: the place of the rank whose tensor is broadcast.

    Attributes:
        awaits: the ranks whose put a take needs.
        columns: how many elements a row has that is put or taken; `width` of them fit into a step.
        signature: what this rank brings, in one word.
        steps: how many puts and takes it is.
    """

    in_rows = False  # whether a tensor is put in N rows, one a receiver

    def __init__(self, slots: Slots, name: str, x: Tensor, source: int = 0) -> None:
        rows = slots.ranks if self.in_rows else 1
        self.slots = slots
        self.name = name
        self.source = source
        self.join: Join = maximum if name.endswith("max") else add
        self.columns = x.numel() // rows
        self.width = slots.bytes // x.itemsize // rows
        self._mine = slots.me if self.in_rows else 0  # which row of everyone's is taken
        self.signature = stem(name, x.dtype, source) + x.numel()
        self.awaits: Sequence[int] = [rank for rank in range(slots.ranks) if rank != slots.me]
        self.steps = max(1, -(-self.columns // self.width))

    def put(self, x: Tensor, step: int, depth: int) -> None:
        """Copy a step's part of contiguous `x` into this rank's slot."""
        part = x
        if self.steps > 1:
            part = self._of_rows(x, step) if self.in_rows else self._of_row(x, step)
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


class Joined(Plan):
    """Everyone's tensor, or this rank's row of it, joined."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Join the ranks' parts."""
        part = out if self.steps == 1 else self._of_row(out, step)
        start = self._mine and self._mine * part.numel()
        self.join(self.slots.at(part.dtype, start, part.shape)[depth].rows, part)


class SideBySide(Plan):
    """Everyone's tensor, or this rank's row of it, side by side."""

    def take(self, out: Tensor, step: int, depth: int) -> None:
        """Set the ranks' parts side by side."""
        part_Nc = self._of_rows(out, step)
        columns = part_Nc.shape[1:]
        start = self._mine and self._mine * columns.numel()
        part_Nc.copy_(self.slots.at(part_Nc.dtype, start, columns)[depth].stack)


class AllReduce(Joined):
    """Everyone's whole tensor, joined by everyone."""


class AllGather(SideBySide):
    """Everyone's whole tensor, side by side."""


class ReduceScatter(Joined):
    """This rank's row of everyone's tensor, joined."""

    in_rows = True


class AllToAll(SideBySide):
    """This rank's row of everyone's tensor, side by side."""

    in_rows = True


class Broadcast(Plan):
    """One rank's tensor, to everyone."""

    def __init__(self, slots: Slots, name: str, x: Tensor, source: int = 0) -> None:
        super().__init__(slots, name, x, source)
        self.awaits = [] if source == slots.me else [source]

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
