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

from typing import TYPE_CHECKING

from torch import Tensor

from shardlab.shared_memory.slots import Join, Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardlab.shared_memory.queue import Queue


class Collective:
    """One collective under way, in `steps` steps of a put and a take each.

    Args:
        queue: what moves it on, in turn with the other collectives of its link.
        x: what this rank brings, contiguous.
        out: where the result goes, contiguous.
        columns: how many elements each row has that is put or taken.
        width: how many of them fit into one step.
        signature: what this rank brings, to be compared (see `signature`).
        after: a collective of the same link whose result is this one's `x`.
    """

    name = ""

    __slots__ = (
        "after", "awaits", "columns", "out", "puts", "queue", "signature", "slots", "steps",
        "takes", "width", "x",
    )  # fmt: skip

    def __init__(
        self, queue: Queue, x: Tensor, out: Tensor, columns: int, width: int, signature: int,
        after: Collective | None = None,
    ) -> None:  # fmt: skip
        self.queue = queue
        self.slots: Slots = queue.slots
        self.x = x
        self.out = out
        self.columns = columns
        self.width = width
        self.signature = signature
        self.after = after
        self.awaits: Sequence[int] = queue.peers  # whose puts a take needs
        self.steps = 1 if columns <= width else -(-columns // width)
        self.puts = self.takes = 0  # steps done

    def put(self, step: int, depth: int) -> None:
        """Copy this rank's part of a step into its slot."""
        x = self.x if self.steps == 1 else self._part(self.x, step)
        self.slots.at(x.dtype, 0, x.shape)[depth].rows[self.slots.me].copy_(x)

    def take(self, step: int, depth: int) -> None:
        """Write this step's part of the output from what all ranks have put."""

    def wait(self) -> None:
        """Block until the output is there."""
        if self.takes < self.steps:
            self.queue.finish(self)

    def _part(self, tensor: Tensor, step: int) -> Tensor:
        """Return the columns [c] of a step, of a tensor that is one row."""
        return tensor.view(-1)[step * self.width : (step + 1) * self.width]

    def _part_of_rows(self, tensor: Tensor, step: int) -> Tensor:
        """Return the columns [N, c] of a step, of a tensor that is N rows."""
        rows_NK = tensor.view(self.slots.ranks, self.columns)
        return rows_NK[:, step * self.width : (step + 1) * self.width]


class AllReduce(Collective):
    """Everyone's whole tensor, joined by everyone."""

    name = "all_reduce"
    __slots__ = ("join",)
    join: Join  # adds rows, or takes their maximum

    def take(self, step: int, depth: int) -> None:
        """Join the ranks' parts."""
        out = self.out if self.steps == 1 else self._part(self.out, step)
        self.join(self.slots.at(out.dtype, 0, out.shape)[depth].rows, out)


class AllGather(Collective):
    """Everyone's whole tensor, side by side."""

    name = "all_gather"
    __slots__ = ()

    def take(self, step: int, depth: int) -> None:
        """Set the ranks' parts side by side."""
        out_Nc = self._part_of_rows(self.out, step)
        out_Nc.copy_(self.slots.at(out_Nc.dtype, 0, out_Nc.shape[1:])[depth].stack)


class _Cut(Collective):
    """What is put in N rows, one a receiver."""

    __slots__ = ()

    def put(self, step: int, depth: int) -> None:
        """Copy all rows' columns of a step into the slot."""
        if self.steps == 1:
            super().put(step, depth)
            return
        x_Nc = self._part_of_rows(self.x, step)
        self.slots.at(x_Nc.dtype, 0, x_Nc.shape)[depth].rows[self.slots.me].copy_(x_Nc)


class ReduceScatter(_Cut):
    """This rank's row of everyone's tensor, joined."""

    name = "reduce_scatter"
    __slots__ = ("join",)
    join: Join

    def take(self, step: int, depth: int) -> None:
        """Join the ranks' parts of this rank's row."""
        out = self.out if self.steps == 1 else self._part(self.out, step)
        start = self.slots.me * out.numel()
        self.join(self.slots.at(out.dtype, start, out.shape)[depth].rows, out)


class AllToAll(_Cut):
    """This rank's row of everyone's tensor, side by side."""

    name = "all_to_all"
    __slots__ = ()

    def take(self, step: int, depth: int) -> None:
        """Set the ranks' parts of this rank's row side by side."""
        out_Nc = self._part_of_rows(self.out, step)
        columns = out_Nc.shape[1:]
        start = self.slots.me * columns.numel()
        out_Nc.copy_(self.slots.at(out_Nc.dtype, start, columns)[depth].stack)


class Broadcast(Collective):
    """One rank's tensor, to everyone."""

    name = "broadcast"
    __slots__ = ("source",)
    source: int

    def put(self, step: int, depth: int) -> None:
        """Copy the source's part."""
        if self.slots.me == self.source:
            super().put(step, depth)

    def take(self, step: int, depth: int) -> None:
        """Copy it out elsewhere."""
        if self.slots.me != self.source:
            out = self.out if self.steps == 1 else self._part(self.out, step)
            out.copy_(self.slots.at(out.dtype, 0, out.shape)[depth].rows[self.source])


class Barrier(Collective):
    """No values at all: only that everyone has come."""

    name = "barrier"
    __slots__ = ()

    def put(self, step: int, depth: int) -> None:
        """Put nothing."""
