"""An axis of the process grid: the collectives as layers call them.

Every collective returns a new tensor, or writes the `out` that it is given, and never touches its
input. The `start_` forms return a `Pending` at once; the result is there after its `wait()`. On an
axis of one rank nothing is sent, and the input itself comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shardlab import agreement, ledger
from shardlab.announcement import Announcement
from shardlab.comm.pending import Pending, Work
from shardlab.faults import CollectiveError

if TYPE_CHECKING:
    from shardlab.comm.world import World

_OPS = ("sum", "mean", "max")


class Axis:
    """A group of ranks with this rank's place in it.

    Attributes:
        name: "tensor", "data" …: for errors and the ledger.
        ranks: the members' global ranks, in order.
        rank: this rank's index among them.
        size: how many there are.
        link: "torch" or "shared-memory".
    """

    def __init__(self, world: World | None, name: str, ranks: tuple[int, ...], link: str) -> None:
        self.name = name
        self.ranks = ranks
        self.size = len(ranks)
        self.link = link
        self.rank = ranks.index(world.rank) if world else 0
        self._world = world
        self._check = bool(world and world.check)
        self._link: Any = world.link(ranks, link) if world and self.size > 1 else None

    @classmethod
    def alone(cls, name: str = "tensor") -> Axis:
        """Return an axis of one rank, with no process group behind it."""
        return cls(None, name, (0,), "torch")

    def __repr__(self) -> str:
        place = f"ranks={list(self.ranks)}, rank={self.rank}"
        return f"Axis({self.name!r}, {place}, link={self.link!r})"

    @property
    def group(self) -> Any:
        """torch's process group over these ranks, to hand to DDP, FSDP, DTensor or Megatron."""
        if self._world is None:
            raise ValueError(f"the {self.name} axis stands alone: it has no process group")
        return self._world.group(self.ranks)

    # ------------------------------------------------------------------ collectives

    def all_reduce(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Tensor:
        """Return the sum (max, mean) of every rank's `x`, the same bits on each."""
        return self.start_all_reduce(x, op=op, out=out).wait()

    def all_gather(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return every rank's `x` [k, …] one after another [n·k, …]."""
        return self.start_all_gather(x, out=out).wait()

    def reduce_scatter(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Tensor:
        """Return this rank's piece [k, …] of the sum (max, mean) of every rank's `x` [n·k, …]."""
        return self.start_reduce_scatter(x, op=op, out=out).wait()

    def all_to_all(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Send piece j of `x` [n·k, …] to rank j; return the pieces that came, in rank order."""
        return self.start_all_to_all(x, out=out).wait()

    def broadcast(self, x: Tensor, *, source: int = 0, out: Tensor | None = None) -> Tensor:
        """Return the `x` of rank `source` of this axis (the others' gives shape and dtype)."""
        return self.start_broadcast(x, source=source, out=out).wait()

    def barrier(self) -> None:
        """Return when every rank of the axis has come here."""
        if self.size == 1:
            return
        try:
            if self.link == "torch":
                with ledger.along(self.name):
                    self._link.barrier()
            else:
                with ledger.asked("barrier", 0, self.ranks, self.name, torch.uint8):
                    self._link.barrier()
        except RuntimeError as error:
            raise self._fault("barrier", error) from error

    def start_all_reduce(self, x: Tensor, *, op: str = "sum", out: Tensor | None = None) -> Pending:
        """Start `all_reduce`; with `out=x` (contiguous) it works in place."""
        if self.size == 1:
            return _already(x, out)
        source = x.contiguous()
        out = _fitting(out, x, x.shape)
        return self._start("all_reduce", (source, out, _known(op)), x.nbytes, x, op)

    def start_all_gather(self, x: Tensor, *, out: Tensor | None = None) -> Pending:
        """Start `all_gather`."""
        if self.size == 1:
            return _already(x, out)
        out = _fitting(out, x, (self.size * x.shape[0], *x.shape[1:]))
        return self._start("all_gather", (x.contiguous(), out), out.nbytes, x)

    def start_reduce_scatter(
        self, x: Tensor, *, op: str = "sum", out: Tensor | None = None
    ) -> Pending:
        """Start `reduce_scatter`.

        Raises:
            ValueError: the axis does not divide dim 0.
        """
        if self.size == 1:
            return _already(x, out)
        out = _fitting(out, x, (self._piece("reduce_scatter", x), *x.shape[1:]))
        return self._start("reduce_scatter", (x.contiguous(), out, _known(op)), x.nbytes, x, op)

    def start_all_to_all(self, x: Tensor, *, out: Tensor | None = None) -> Pending:
        """Start `all_to_all`.

        Raises:
            ValueError: the axis does not divide dim 0.
        """
        if self.size == 1:
            return _already(x, out)
        self._piece("all_to_all", x)
        out = _fitting(out, x, x.shape)
        return self._start("all_to_all", (x.contiguous(), out), x.nbytes, x)

    def start_broadcast(self, x: Tensor, *, source: int = 0, out: Tensor | None = None) -> Pending:
        """Start `broadcast`; with `out=x` (contiguous) it works in place."""
        if not 0 <= source < self.size:
            raise ValueError(f"broadcast from rank {source} of {self._place}: it has no such rank")
        if self.size == 1:
            return _already(x, out)
        out = _fitting(out, x, x.shape)
        if out is not x and self.rank == source:
            out.copy_(x)
        return self._start("broadcast", (out, source), x.nbytes, x, str(source))

    def _start(
        self, kind: str, args: tuple[Any, ...], payload: int, x: Tensor, op: str = "sum"
    ) -> Pending:
        """Check, count and start one collective; the result is its second tensor, or its only."""
        start = getattr(self._link, f"start_{kind}")
        result = args[0] if kind == "broadcast" else args[1]
        try:
            if self._check:
                agreement.demand(self, kind, x, op)
            if self.link == "torch" and kind in ("all_reduce", "all_gather", "reduce_scatter"):
                if self._link.composes(kind, x, op):
                    with ledger.asked(kind, payload, self.ranks, self.name, x.dtype):
                        work = start(*args, True)
                else:
                    with ledger.along(self.name):
                        work = start(*args, False)
            elif self.link == "torch":
                with ledger.along(self.name):
                    work = start(*args)
            else:
                with ledger.asked(kind, payload, self.ranks, self.name, x.dtype):
                    work = start(*args)
        except RuntimeError as error:
            raise self._fault(kind, error) from error
        return Pending(result, work, kind, self._fault, self.size if op == "mean" else 1)

    # ------------------------------------------------------------------ point to point

    def send(self, x: Tensor, to: int, *, tag: int = 0) -> None:
        """Send `x` to rank `to` of this axis; on gloo, returns when the receiver has posted."""
        self.start_send(x, to, tag=tag).wait()

    def recv(self, out: Tensor, source: int, *, tag: int = 0) -> Tensor:
        """Receive into `out` (contiguous) from rank `source` of this axis."""
        return self.start_recv(out, source, tag=tag).wait()

    def start_send(self, x: Tensor, to: int, *, tag: int = 0) -> Pending:
        """Start sending `x`; it must not change before `wait`, and the Pending must be kept."""
        self._peer("send", to)
        source = x.contiguous()
        doing = f"send to rank {self.ranks[to]}"
        ends = (self.ranks[self.rank], self.ranks[to])
        try:
            said = self._announce(ends, tag, source, sent=True)
            if self.link != "torch":
                with ledger.asked("send", x.nbytes, ends, self.name, x.dtype):
                    work = self._link.start_send(source, to, tag)
            else:
                with ledger.along(self.name):
                    work = self._link.start_send(source, to, tag)
        except RuntimeError as error:
            raise self._fault(doing, error) from error
        return Pending(source, _Announced(said, work) if said else work, doing, self._fault)

    def start_recv(self, out: Tensor, source: int, *, tag: int = 0) -> Pending:
        """Start receiving into `out`, a contiguous tensor of the sender's shape and dtype."""
        self._peer("recv", source)
        if not out.is_contiguous():
            raise ValueError(f"recv needs a contiguous tensor; strides are {out.stride()}")
        doing = f"recv from rank {self.ranks[source]}"
        ends = (self.ranks[source], self.ranks[self.rank])
        try:
            said = self._announce(ends, tag, out, sent=False)
            if self.link != "torch":
                with ledger.asked("recv", out.nbytes, ends, self.name, out.dtype):
                    work = self._link.start_recv(out, source, tag)
            else:
                with ledger.along(self.name):
                    work = self._link.start_recv(out, source, tag)
        except RuntimeError as error:
            raise self._fault(doing, error) from error
        return Pending(out, _Announced(said, work) if said else work, doing, self._fault)

    def start_exchange(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]], *,
        tags: Sequence[int] | None = None,
    ) -> list[Pending]:  # fmt: skip
        """Start several sends and receives that may cross; returns the sends', then the receives'.

        NCCL runs point-to-point calls of one stream in the order of their launch, so two ranks
        that each send first would wait for ever: there they go out as one group.

        Args:
            sends: tensors and the ranks they go to.
            receives: contiguous tensors and the ranks that fill them.
            tags: one for each, the sends' first. NCCL has none: it matches by order alone.
        """
        if self.link == "torch" and self._link is not None and self._link.groups_exchanges:
            ours = [(x.contiguous(), to) for x, to in sends]
            with ledger.along(self.name):
                works = self._link.start_grouped(ours, receives)
            buffers = [x for x, _ in [*ours, *receives]]
            return [
                Pending(buffer, work, "exchange", self._fault)
                for buffer, work in zip(buffers, works, strict=True)
            ]
        tags = [0] * (len(sends) + len(receives)) if tags is None else tags
        arriving = [
            self.start_recv(out, source, tag=tag)
            for (out, source), tag in zip(receives, tags[len(sends) :], strict=True)
        ]
        leaving = [
            self.start_send(x, to, tag=tag) for (x, to), tag in zip(sends, tags, strict=False)
        ]
        return leaving + arriving

    # ------------------------------------------------------------------ what must hold

    @property
    def _place(self) -> str:
        return f"the {self.name} axis {list(self.ranks)}"

    def _fault(self, doing: str, error: RuntimeError) -> RuntimeError:
        """Return the error to raise for one that the backend gave: with names."""
        if self._world is None or isinstance(error, CollectiveError):
            return error
        return self._world.witness.explain(f"{doing} on {self._place}", self.ranks, error)

    def _announce(
        self, ends: tuple[int, int], tag: int, x: Tensor, *, sent: bool
    ) -> Announcement | None:
        """Compare both ends of a message, where the world checks."""
        if not self._check or self._world is None:
            return None
        return self._world.announcements.announce(self.name, self.ranks, ends, tag, x, sent=sent)

    def _piece(self, kind: str, x: Tensor) -> int:
        if x.dim() == 0 or x.shape[0] % self.size:
            raise ValueError(
                f"{kind} on {self._place} cuts dim 0 into {self.size} equal pieces; "
                f"the tensor has shape {tuple(x.shape)}"
            )
        return int(x.shape[0]) // self.size

    def _peer(self, kind: str, peer: int) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            raise ValueError(
                f"{kind} with rank {peer} of {self._place}: this is rank {self.rank} of {self.size}"
            )

    def gather_small(self, x: Tensor, out: Tensor) -> None:
        """All-gather a few CPU numbers, unchecked and uncounted: what the check itself runs on."""
        with ledger.muted():
            if self.link == "torch":
                device = self._world.device if self._world else x.device
                self._link.gather_small(x, out, device)
            else:
                self._link.start_all_gather(x, out).wait()


class _Announced:
    """A message whose two ends are compared before it is waited for."""

    def __init__(self, said: Announcement, work: Work) -> None:
        self._said = said
        self._work = work

    def wait(self) -> None:
        self._said.wait()
        self._work.wait()


def _already(x: Tensor, out: Tensor | None) -> Pending:
    """On an axis of one rank the result is the input."""
    if out is None or out is x:
        return Pending(x)
    return Pending(out.copy_(x))


def _known(op: str) -> str:
    if op not in _OPS:
        raise ValueError(f"op {op!r} is not known; choose sum, mean or max")
    return op


def _fitting(out: Tensor | None, x: Tensor, shape: Sequence[int]) -> Tensor:
    if out is None:
        return torch.empty(tuple(shape), dtype=x.dtype, device=x.device)
    if tuple(out.shape) != tuple(shape) or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(
            f"out must be contiguous, {x.dtype} and of shape {tuple(shape)}; "
            f"it is {out.dtype}, {tuple(out.shape)}, strides {out.stride()}"
        )
    return out
