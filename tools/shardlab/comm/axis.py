"""An axis of the process grid: the collectives that layers call.

Every collective returns a new tensor or writes into `out`, and never changes its input. `start`
returns a `Pending` at once; its `wait()` returns the result. On an axis of one rank nothing is sent
and the input itself is returned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from shardlab.comm import tracing
from shardlab.comm.pending import CollectiveError, Pending, Rows
from shardlab.comm.point_to_point import PointToPoint

if TYPE_CHECKING:
    from shardlab.comm.transport import AxisWorld, Transport

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]


class Axis(PointToPoint):
    """A group of ranks, and this rank's index in it.

    Attributes:
        name: the name in errors and in the ledger, such as "tensor" or "data".
        ranks: the members' global ranks, in order.
        rank: this rank's index among them.
        size: the number of members.
        link: what carries its collectives: "torch", or a name of `shardlab.links.LINKS`.
    """

    def __init__(
        self, world: AxisWorld | None, name: str, ranks: tuple[int, ...], link: str
    ) -> None:
        self.name = name
        self.ranks = ranks
        self.size = len(ranks)
        self.link = link
        self.rank = ranks.index(world.rank) if world else 0
        self._world = world
        self._rendezvous_count = 0
        self._check = world.consistency_check if world and self.size > 1 else None
        self._wide = bool(world and world.wide_sums)
        self._link: Transport | None = None
        if world and self.size > 1:
            self._link = world.connect(ranks, link)

    @classmethod
    def alone(cls, name: str = "tensor") -> Axis:
        """Return an axis of one rank, with no process group behind it."""
        return cls(None, name, (0,), "torch")

    def __repr__(self) -> str:
        place = f"ranks={list(self.ranks)}, rank={self.rank}"
        return f"Axis({self.name!r}, {place}, link={self.link!r})"

    def __deepcopy__(self, memo: object) -> Axis:
        """Return the axis itself: a deep copy of a module communicates over the same ranks."""
        return self

    @property
    def checks(self) -> bool:
        """Whether the world compares the ranks' collectives first (`World.join(check=True)`)."""
        return self._check is not None

    @property
    def group(self) -> Any:
        """torch's process group over these ranks, to hand to DDP, FSDP, DTensor or Megatron."""
        if self._world is None:
            raise ValueError(f"the {self.name} axis stands alone: it has no process group")
        return self._world.group(self.ranks)

    # ------------------------------------------------------------------ collectives

    def all_reduce(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Tensor:
        """Return the sum (max, mean) of every rank's `x`, with the same bits on every rank."""
        return self.start("all_reduce", x, out=out, op=op).wait()

    def all_gather(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return every rank's `x` [k, …], concatenated in rank order: [n·k, …]."""
        return self.start("all_gather", x, out=out).wait()

    def reduce_scatter(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Tensor:
        """Return this rank's piece [k, …] of the sum (max, mean) of every rank's `x` [n·k, …]."""
        return self.start("reduce_scatter", x, out=out, op=op).wait()

    def all_to_all(self, x: Tensor, *, out: Tensor | None = None, rows: Rows = None) -> Tensor:
        """Send piece j of `x` [n·k, …] to rank j; return the received pieces, in rank order."""
        return self.start("all_to_all", x, out=out, rows=rows).wait()

    def broadcast(self, x: Tensor, *, source: int = 0, out: Tensor | None = None) -> Tensor:
        """Return the `x` of rank `source`; on the other ranks `x` gives the shape and dtype."""
        return self.start("broadcast", x, out=out, source=source).wait()

    def barrier(self) -> None:
        """Return when every rank of the axis has called this."""
        if self.size == 1:
            return
        try:
            assert self._link
            with tracing.axis(self.name):
                self._link.barrier()
        except RuntimeError as error:
            self._explain("barrier", error)
            raise

    def start(
        self, kind: Kind, x: Tensor, *, out: Tensor | None = None, op: str = "sum",
        source: int = 0, rows: Rows = None,
    ) -> Pending:  # fmt: skip
        """Start one of the collectives above; the returned Pending's `wait` gives its result.

        Args:
            kind: the collective.
            x: the input, of the same shape on every rank, except in an all-to-all with `rows`.
            out: a contiguous tensor for the result; None for a new one. With `out=x` an all-reduce
                and a broadcast work in place.
            op: the reduction: sum, mean or max.
            source: the rank whose `x` is broadcast.
            rows: rows of an all-to-all: how many go to each rank and how many come from each; by
                default equal numbers.

        Raises:
            ValueError: `op` or `source` is unknown, `out` doesn't fit, or the axis's size doesn't
                divide dim 0.
        """
        if not 0 <= source < self.size:
            raise ValueError(f"{kind} from rank {source} of {self._place}: it has no such rank")
        if self.size == 1:
            return Pending(x if out is None or out is x else out.copy_(x))
        if op not in ("sum", "mean", "max"):
            raise ValueError(f"op {op!r} is not known; choose sum, mean or max")
        shape = self._shape(kind, x) if rows is None else (sum(rows[1]), *x.shape[1:])
        result, local, rounded = _output_buffer(out, x, shape), x.contiguous(), None
        widens = self._wide and "reduce" in kind and op != "max"
        if widens and x.is_floating_point() and x.itemsize < 4:
            local, rounded = local.float(), result
            result = torch.empty_like(rounded, dtype=torch.float32)
        args: tuple[Any, ...] = (local, result)
        if kind == "broadcast":
            args, op = (result, source), str(source)
            if result is not x and self.rank == source:
                result.copy_(x)
        elif kind == "all_to_all":
            args += (rows,)
        else:
            args += (op,) if "reduce" in kind else ()
        try:
            if self._check:
                part = x if rows is None else x[:0]
                self._check.check(
                    kind, part, op, place=self._place, ranks=self.ranks, gather=self.gather_small
                )
            with tracing.axis(self.name):
                work = getattr(self._link, f"start_{kind}")(*args)
            self._watch_works([work], kind)
        except RuntimeError as error:
            self._explain(kind, error)
            raise
        divisor = self.size if op == "mean" else 1
        return Pending(result, work, kind, self._explain, divisor, rounded)

    def _shape(self, kind: str, x: Tensor) -> Sequence[int]:
        """Return the shape of a collective's result."""
        if kind == "all_gather":
            return (self.size * x.shape[0], *x.shape[1:])
        if kind in ("reduce_scatter", "all_to_all") and (x.dim() == 0 or x.shape[0] % self.size):
            raise ValueError(
                f"{kind} on {self._place} cuts dim 0 into {self.size} equal pieces; "
                f"the tensor has shape {tuple(x.shape)}"
            )
        return (x.shape[0] // self.size, *x.shape[1:]) if kind == "reduce_scatter" else x.shape

    # ------------------------------------------------------------------ what must hold

    def agree(self, action: str) -> None:
        """Where the world checks, raise on every rank unless all are about to do the same.

        Args:
            action: a description of what this rank is about to do.

        Raises:
            CollectiveError: some ranks gave another description; names them.
        """
        if self._check and (differing := self.start_comparison(action)()):
            raise CollectiveError(
                f"the ranks of {self._place} do different things, which would meet as if they were "
                f"the same: ranks {differing} not what this one does, {action}"
            )

    def start_comparison(self, text: str) -> Callable[[], list[int]]:
        """Start to compare a text; return a function that waits, and names ranks with another."""
        digest = torch.tensor([zlib.crc32(text.encode())], device="cpu")
        digests = torch.empty(self.size, dtype=digest.dtype, device="cpu")
        wait = self.start_gather_small(digest, digests)

        def finish() -> list[int]:
            wait()
            return [r for r, other in zip(self.ranks, digests, strict=True) if other != digest]

        return finish

    def rendezvous(self, action: str) -> None:
        """Wait until all ranks have written the same action to their store.

        For actions that perhaps not all ranks take: a collective would pair with whatever
        collective the other ranks call next.

        Args:
            action: a description of what this rank is about to do.

        Raises:
            CollectiveError: a rank wrote another action, or wrote none in time.
        """
        if self._world is None or self._world.backend == "fake" or self._check:
            return  # there is no other rank, or each collective is compared before it is sent
        self._rendezvous_count += 1
        key = f"meet/{self._place}/{self._rendezvous_count}"
        actions = self._world.failure_reporter.exchange(
            key, self.ranks, action, self._world.collective_timeout
        )
        differing = [rank for rank in self.ranks if actions.get(rank) != action]
        if differing:
            details = "; ".join(
                f"rank {r}: {actions.get(r, 'went on as before')}" for r in differing
            )
            raise CollectiveError(
                f"the ranks of {self._place} do different things: this one would {action} "
                f"({details})"
            )

    def gather_small(self, x: Tensor, out: Tensor) -> None:
        """All-gather a few CPU numbers, neither checked nor counted: the check itself uses it."""
        self.start_gather_small(x, out)()

    def start_gather_small(self, x: Tensor, out: Tensor) -> Callable[[], None]:
        """Start a `gather_small`; return a function that waits for it and fills `out`.

        It waits for what the GPU had to do when this was called, and for nothing that came later.
        """
        if self._world is None or self._world.backend == "fake":  # there is no other rank
            out.view(self.size, -1).copy_(x)
            return lambda: None
        assert self._link
        gathered, local = out, x
        if not self.gathers_on_host:
            gathered = torch.empty_like(out, device=self._link.device)
            local = x.pin_memory().to(gathered.device, non_blocking=True)
        with tracing.paused():
            work = self._link.start_all_gather(local, gathered)

        def finish() -> None:
            try:
                with tracing.paused(), _on_side_stream(gathered.device):
                    work.wait()
                    out.copy_(gathered)
            except RuntimeError as error:
                self._explain("all_gather", error)
                raise

        return finish

    @property
    def gathers_on_host(self) -> bool:
        """Whether `gather_small` waits for no GPU; gloo sends the CPU's numbers as they are."""
        return self._world is None or self._world.backend != "nccl"


def _on_side_stream(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context whose work on a GPU doesn't wait for what the current stream has to do."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def _output_buffer(out: Tensor | None, x: Tensor, shape: Sequence[int]) -> Tensor:
    if out is None:
        return torch.empty(tuple(shape), dtype=x.dtype, device=x.device)
    if tuple(out.shape) != tuple(shape) or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(
            f"out must be contiguous, {x.dtype} and of shape {tuple(shape)}; "
            f"it is {out.dtype}, {tuple(out.shape)}, strides {out.stride()}"
        )
    return out
