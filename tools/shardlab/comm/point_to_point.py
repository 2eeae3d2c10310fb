"""Messages from one rank of an axis to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from shardlab.comm import tracing
from shardlab.comm.pending import Pending, Work, is_backend_error

if TYPE_CHECKING:
    from shardlab.comm.consistency_check import ConsistencyCheck
    from shardlab.comm.transport import AxisWorld, Transport


class PointToPoint:
    """The messages of an axis, from one rank to another; a base class of `Axis`."""

    name: str
    ranks: tuple[int, ...]
    size: int
    rank: int
    _world: AxisWorld | None
    _check: ConsistencyCheck | None
    _link: Transport | None

    def send(self, x: Tensor, to: int) -> None:
        """Send `x` to rank `to` of this axis; on gloo, returns when the receiver has posted."""
        self._start_message(x.contiguous(), to, 0, is_send=True).wait()

    def recv(self, out: Tensor, source: int) -> Tensor:
        """Receive into `out`, contiguous and of the sender's shape and dtype; return it."""
        return self._start_message(out, source, 0, is_send=False).wait()

    def start_exchange(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]], *,
        tags: Sequence[int] | None = None,
    ) -> list[Pending]:  # fmt: skip
        """Start several sends and receives that may cross.

        A sent tensor must not change before its `wait`, and the caller must keep every Pending.
        NCCL runs the point-to-point calls of one stream in the order of their launch, so two ranks
        that each send first would deadlock. Under NCCL all of them therefore go out as one group.

        Args:
            sends: tensors, each with the rank that it goes to.
            receives: contiguous tensors, each with the rank that fills it.
            tags: one for each message, the sends' first. NCCL has no tags and matches messages by
                their order.

        Returns:
            a Pending for each send, then one for each receive.
        """
        sends = [(x.contiguous(), to) for x, to in sends]
        if self._link is not None and self._link.groups_exchanges:
            with tracing.axis(self.name):
                works = self._link.start_grouped(sends, receives)
            self._watch_works(works, "exchange")
            return [
                Pending(buffer, work, "exchange", self._explain)
                for (buffer, _), work in zip([*sends, *receives], works, strict=True)
            ]
        tags = [0] * (len(sends) + len(receives)) if tags is None else tags
        arriving = [
            self._start_message(out, source, tag, is_send=False)
            for (out, source), tag in zip(receives, tags[len(sends) :], strict=True)
        ]
        leaving = [
            self._start_message(x, to, tag, is_send=True)
            for (x, to), tag in zip(sends, tags, strict=False)
        ]
        return leaving + arriving

    def _start_message(self, x: Tensor, peer: int, tag: int, *, is_send: bool) -> Pending:
        """Start one end of a message; where the world checks, compare it with the other end."""
        kind, preposition = ("send", "to") if is_send else ("recv", "from")
        if not 0 <= peer < self.size or peer == self.rank:
            raise ValueError(
                f"{kind} with rank {peer} of {self._place}: this is rank {self.rank} of {self.size}"
            )
        if not x.is_contiguous():
            raise ValueError(f"recv needs a contiguous tensor; strides are {x.stride()}")
        rank, peer_rank = self.ranks[self.rank], self.ranks[peer]
        operation = f"{kind} {preposition} rank {peer_rank}"
        ends = (rank, peer_rank) if is_send else (peer_rank, rank)
        try:
            announcement = None
            if self._check:
                announcement = self._check.announce(
                    self.name, self.ranks, ends, tag, x, is_send=is_send
                )
            with tracing.axis(self.name):
                work = getattr(self._link, f"start_{kind}")(x, peer, tag)
            self._watch_works([work], operation)
        except RuntimeError as error:
            self._explain(operation, error)
            raise
        return Pending(
            x, _Announced(announcement, work) if announcement else work, operation, self._explain
        )

    # ------------------------------------------------------------------ what must hold

    @property
    def _place(self) -> str:
        return f"the {self.name} axis {list(self.ranks)}"

    def _watch_works(self, works: Sequence[Work], operation: str) -> None:
        if self._world is not None and self._world.watchdog:
            self._world.watchdog.watch(works, f"{operation} on {self._place}", self.ranks)

    def _explain(self, operation: str, error: RuntimeError) -> None:
        """Raise an error that names the missing ranks if the backend raised `error`."""
        if self._world is not None and is_backend_error(error):
            place = f"{operation} on {self._place}"
            raise self._world.failure_reporter.explain(place, self.ranks, error) from error


class _Announced(NamedTuple):
    """A message whose two ends are compared before its `wait`."""

    announcement: Work
    work: Work

    def wait(self) -> None:
        self.announcement.wait()
        self.work.wait()
