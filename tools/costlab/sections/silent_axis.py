"""An axis whose other ranks are not there: what a step costs when communication is free.

It makes the shapes that the real one makes, by a copy within this rank: a gather is filled with
this rank's own part, over and over, and a reduction returns this rank's own. The numbers are
nonsense; the work around them is the same.
"""

from __future__ import annotations

from torch import Tensor

from shardlab.comm import Axis, Pending


class SilentAxis(Axis):
    """Rank `rank` of `size`, alone.

    Args:
        size: how many ranks it plays.
        rank: which of them this one is.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__(None, "silent", tuple(range(size)), "torch")
        self.rank = rank

    def start_all_reduce(
        self, x: Tensor, *, op: str = "sum", out: Tensor | None = None, prompt: bool = False
    ) -> Pending:
        """Hand `x` back."""
        return Pending(x.clone() if out is None else out.copy_(x))

    def start_all_gather(
        self, x: Tensor, *, out: Tensor | None = None, prompt: bool = False
    ) -> Pending:
        """Fill the whole with `x`."""
        if out is None:
            out = x.new_empty((self.size * x.shape[0], *x.shape[1:]))
        out.view(self.size, *x.shape).copy_(x)
        return Pending(out)

    def start_reduce_scatter(
        self, x: Tensor, *, op: str = "sum", out: Tensor | None = None, prompt: bool = False
    ) -> Pending:
        """Hand this rank's rows of `x` back."""
        mine = x.view(self.size, x.shape[0] // self.size, *x.shape[1:])[self.rank]
        return Pending(mine.clone() if out is None else out.copy_(mine))
