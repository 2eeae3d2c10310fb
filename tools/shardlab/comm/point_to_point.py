"""Messages from one rank of an axis to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from shardlab.comm.announcement import Announcement
from shardlab.comm.faults import says_backend
from shardlab.comm.pending import Pending, Work
from shardlab.proofs import ledger

if TYPE_CHECKING:
    from shardlab.comm.world import World


class PointToPoint:
    """What an axis sends and receives: `Axis` is one of these."""

    name: str
    ranks: tuple[int, ...]
    size: int
    rank: int
    link: str
    _world: World | None
    _check: bool
    _link: Any

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
            self._explain(doing, error)
            raise
        return Pending(source, _Announced(said, work) if said else work, doing, self._explain)

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
            self._explain(doing, error)
            raise
        return Pending(out, _Announced(said, work) if said else work, doing, self._explain)

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
                Pending(buffer, work, "exchange", self._explain)
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

    def _explain(self, doing: str, error: RuntimeError) -> None:
        """Raise, in place of an error that the backend gave, one with names; leave any other."""
        if self._world is not None and says_backend(error):
            place = f"{doing} on {self._place}"
            raise self._world.witness.explain(place, self.ranks, error) from error

    def _announce(
        self, ends: tuple[int, int], tag: int, x: Tensor, *, sent: bool
    ) -> Announcement | None:
        """Compare both ends of a message, where the world checks."""
        if not self._check or self._world is None:
            return None
        return self._world.announcements.announce(self.name, self.ranks, ends, tag, x, sent=sent)

    def _peer(self, kind: str, peer: int) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            raise ValueError(
                f"{kind} with rank {peer} of {self._place}: this is rank {self.rank} of {self.size}"
            )


class _Announced:
    """A message whose two ends are compared before it is waited for."""

    def __init__(self, said: Announcement, work: Work) -> None:
        self._said = said
        self._work = work

    def wait(self) -> None:
        self._said.wait()
        self._work.wait()
