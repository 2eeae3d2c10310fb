"""An axis whose other ranks are not there: what a step costs when communication is free.

It makes the shapes that the real one makes, by a copy within this rank: a gather is filled with
this rank's own part, over and over, and a reduction returns this rank's own. The numbers are
nonsense; the work around them is the same.
"""

from typing import Any

from torch import Tensor

from shardlab.comm import Axis, Pending
from shardlab.comm.axis import Kind


class SilentAxis(Axis):
    """Rank `rank` of `size`, alone.

    Args:
        size: how many ranks it plays.
        rank: which of them this one is.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__(None, "silent", tuple(range(size)), "torch")
        self.rank = rank

    def start(self, kind: Kind, x: Tensor, *, out: Tensor | None = None, **_: Any) -> Pending:
        """Make the result of this rank's own."""
        out = x.new_empty(self._shape(kind, x)) if out is None else out
        if kind == "all_gather":
            out.view(self.size, *x.shape).copy_(x)
        elif kind == "reduce_scatter":
            out.copy_(x.view(self.size, -1)[self.rank].view(out.shape))
        else:
            out.copy_(x)
        return Pending(out)
