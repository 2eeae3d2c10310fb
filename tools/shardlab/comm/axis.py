"""An axis of the process grid: the collectives as layers call them.

Every collective returns a new tensor, or writes the `out` that it is given, and never touches its
input. `start` returns a `Pending` at once; the result is there after its `wait()`. On an axis of
one rank nothing is sent, and the input itself comes back.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from shardlab.comm import observed
from shardlab.comm.pending import CollectiveError, Pending, Rows
from shardlab.comm.point_to_point import PointToPoint

if TYPE_CHECKING:
    from shardlab.comm.world import World

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]


class Axis(PointToPoint):
    """A group of ranks with this rank's place in it.

    Attributes:
        name: "tensor", "data" …: for errors and the ledger.
        ranks: the members' global ranks, in order.
        rank: this rank's index among them.
        size: how many there are.
        link: what carries it: "torch", or a folder of shardlab/links.
    """

    def __init__(self, world: World | None, name: str, ranks: tuple[int, ...], link: str) -> None:
        self.name = name
        self.ranks = ranks
        self.size = len(ranks)
        self.link = link
        self.rank = ranks.index(world.rank) if world else 0
        self._world = world
        self._meetings = 0
        self._agreement = world.agreement if world and self.size > 1 else None
        self._wide = bool(world and world.wide_sums)
        self._link: Any = world.connect(ranks, link) if world and self.size > 1 else None

    @classmethod
    def alone(cls, name: str = "tensor") -> Axis:
        """Return an axis of one rank, with no process group behind it."""
        return cls(None, name, (0,), "torch")

    def __repr__(self) -> str:
        place = f"ranks={list(self.ranks)}, rank={self.rank}"
        return f"Axis({self.name!r}, {place}, link={self.link!r})"

    def __deepcopy__(self, memo: object) -> Axis:
        """A copy of what uses an axis uses the same one: ranks and wires have no copies."""
        return self

    @property
    def checks(self) -> bool:
        """Whether the world compares what its ranks do (`World.join(check=True)`)."""
        return self._agreement is not None

    @property
    def group(self) -> Any:
        """torch's process group over these ranks, to hand to DDP, FSDP, DTensor or Megatron."""
        if self._world is None:
            raise ValueError(f"the {self.name} axis stands alone: it has no process group")
        return self._world.group(self.ranks)

    # ------------------------------------------------------------------ collectives

    def all_reduce(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Tensor:
        """Return the sum (max, mean) of every rank's `x`, the same bits on each."""
        return self.start("all_reduce", x, out=out, op=op, prompt=True).wait()

    def all_gather(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return every rank's `x` [k, …] one after another [n·k, …]."""
        return self.start("all_gather", x, out=out, prompt=True).wait()

    def reduce_scatter(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Tensor:
        """Return this rank's piece [k, …] of the sum (max, mean) of every rank's `x` [n·k, …]."""
        return self.start("reduce_scatter", x, out=out, op=op, prompt=True).wait()

    def all_to_all(self, x: Tensor, *, out: Tensor | None = None, rows: Rows = None) -> Tensor:
        """Send piece j of `x` [n·k, …] to rank j; return the pieces that came, in rank order."""
        return self.start("all_to_all", x, out=out, rows=rows).wait()

    def broadcast(self, x: Tensor, *, source: int = 0, out: Tensor | None = None) -> Tensor:
        """Return the `x` of rank `source` of this axis (the others' gives shape and dtype)."""
        return self.start("broadcast", x, out=out, source=source).wait()

    def barrier(self) -> None:
        """Return when every rank of the axis has come here."""
        if self.size == 1:
            return
        try:
            with observed.along(self.name):
                self._link.barrier()
        except RuntimeError as error:
            self._explain("barrier", error)
            raise

    def start(
        self, kind: Kind, x: Tensor, *, out: Tensor | None = None, op: str = "sum",
        source: int = 0, prompt: bool = False, rows: Rows = None,
    ) -> Pending:  # fmt: skip
        """Start one of the collectives above; its result is there after the Pending's `wait`.

        Args:
            kind: which.
            x: the same shape on every rank, but for an all-to-all with `rows`.
            out: where the result goes, contiguous; a new tensor if None. With `out=x` an all-reduce
                and a broadcast work in place.
            op: of a reduction: sum, mean or max.
            source: of a broadcast: whose `x`.
            prompt: whether `wait` follows before anything that another rank may be waiting for:
                a link may then leave work to `wait`. The same on every rank.
            rows: of an all-to-all: how many go to each rank and come from each; equally many
                unless given.

        Raises:
            ValueError: an unknown op or source; an `out` that doesn't fit; or pieces of dim 0 that
                are not equal.
        """
        if not 0 <= source < self.size:
            raise ValueError(f"{kind} from rank {source} of {self._place}: it has no such rank")
        if self.size == 1:
            return Pending(x if out is None or out is x else out.copy_(x))
        if op not in ("sum", "mean", "max"):
            raise ValueError(f"op {op!r} is not known; choose sum, mean or max")
        shape = self._shape(kind, x) if rows is None else (sum(rows[1]), *x.shape[1:])
        result, mine, narrow = _fitting(out, x, shape), x.contiguous(), None
        widens = self._wide and "reduce" in kind and op != "max"
        if widens and x.is_floating_point() and x.itemsize < 4:
            mine, narrow = mine.float(), result
            result = torch.empty_like(narrow, dtype=torch.float32)
        args: tuple[Any, ...] = (mine, result)
        if kind == "broadcast":
            args, op = (result, source), str(source)
            if result is not x and self.rank == source:
                result.copy_(x)
        elif kind == "all_to_all":
            args += (rows,)
        else:
            args += (op, prompt) if "reduce" in kind else (prompt,)
        try:
            if self._agreement:
                self._agreement.demand(self, kind, x if rows is None else x[:0], op)
            with observed.along(self.name):
                work = getattr(self._link, f"start_{kind}")(*args)
            self._look_after([work], kind)
        except RuntimeError as error:
            self._explain(kind, error)
            raise
        divide = self.size if op == "mean" else 1
        return Pending(result, work, kind, self._explain, divide, narrow)

    def _shape(self, kind: str, x: Tensor) -> Sequence[int]:
        """Return the shape of what a collective of `x` results in."""
        if kind == "all_gather":
            return (self.size * x.shape[0], *x.shape[1:])
        if kind in ("reduce_scatter", "all_to_all") and (x.dim() == 0 or x.shape[0] % self.size):
            raise ValueError(
                f"{kind} on {self._place} cuts dim 0 into {self.size} equal pieces; "
                f"the tensor has shape {tuple(x.shape)}"
            )
        return (x.shape[0] // self.size, *x.shape[1:]) if kind == "reduce_scatter" else x.shape

    # ------------------------------------------------------------------ what must hold

    def agree(self, doing: str) -> None:
        """Where the world checks, refuse ranks that don't all come here with the same words."""
        if self._agreement:
            self.demand_same(doing)

    def demand_same(self, said: str) -> None:
        """Gather what every rank says; raise on each rank unless it is the same.

        Raises:
            CollectiveError: names the ranks that say something else, and what this one says.
        """
        mine = torch.tensor([zlib.crc32(said.encode())])
        words = torch.empty(self.size, dtype=mine.dtype)
        self.gather_small(mine, words)
        others = [rank for rank, word in zip(self.ranks, words, strict=True) if word != mine]
        if others:
            raise CollectiveError(
                f"the ranks of {self._place} do different things, which would meet as if they were "
                f"the same: ranks {others} not what this one does, {said}"
            )

    def meet(self, words: str) -> None:
        """Wait at the ranks' store until all of them have come with the same words.

        For what only some ranks may do: in a collective they would meet whatever comes next.

        Args:
            words: what this rank is about to do.

        Raises:
            CollectiveError: a rank came with other words, or did not come in time.
        """
        if self._world is None or self._world.backend == "fake" or self._agreement:
            return  # no other rank is there, or each collective is compared before it is sent
        self._meetings += 1
        place = f"meet/{self._place}/{self._meetings}"
        heard = self._world.witness.exchange(place, self.ranks, words, self._world.patience)
        wrong = [rank for rank in self.ranks if heard.get(rank) != words]
        if wrong:
            who = "; ".join(f"rank {r}: {heard.get(r, 'went on as before')}" for r in wrong)
            raise CollectiveError(
                f"the ranks of {self._place} do different things: this one would {words} ({who})"
            )

    def gather_small(self, x: Tensor, out: Tensor) -> None:
        """All-gather a few CPU numbers, unchecked and uncounted: what the check itself runs on."""
        self.start_gather_small(x, out, prompt=True)()

    def start_gather_small(
        self, x: Tensor, out: Tensor, *, prompt: bool = False
    ) -> Callable[[], None]:
        """Start a `gather_small`; return what waits for it and fills `out`."""
        if self._world is None or self._world.backend == "fake":  # no other rank is there
            out.view(self.size, -1).copy_(x)
            return lambda: None
        with observed.muted():  # on the device that the link can reach
            gathered, local = out.to(self._link.device), x.to(self._link.device)
            work = self._link.start_all_gather(local, gathered, prompt)

        def finish() -> None:
            try:
                with observed.muted():
                    work.wait()
            except RuntimeError as error:
                self._explain("all_gather", error)
                raise
            out.copy_(gathered)

        return finish


def _fitting(out: Tensor | None, x: Tensor, shape: Sequence[int]) -> Tensor:
    if out is None:
        return torch.empty(tuple(shape), dtype=x.dtype, device=x.device)
    if tuple(out.shape) != tuple(shape) or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(
            f"out must be contiguous, {x.dtype} and of shape {tuple(shape)}; "
            f"it is {out.dtype}, {tuple(out.shape)}, strides {out.stride()}"
        )
    return out
