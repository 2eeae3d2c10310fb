"""Messages from one rank of an axis to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from shardlab.comm import observed
from shardlab.comm.pending import Pending, Work, says_backend

if TYPE_CHECKING:
    from shardlab.comm.world import World


class PointToPoint:
    """What an axis sends and receives: `Axis` is one of these."""

    name: str
    ranks: tuple[int, ...]
    size: int
    rank: int
    _world: World | None
    _agreement: Any
    _link: Any

    def send(self, x: Tensor, to: int) -> None:
        """Send `x` to rank `to` of this axis; on gloo, returns when the receiver has posted."""
        self._start_message(x.contiguous(), to, 0, sent=True).wait()

    def recv(self, out: Tensor, source: int) -> Tensor:
        """Receive into `out`, contiguous and of the sender's shape and dtype; return it."""
        return self._start_message(out, source, 0, sent=False).wait()

    def start_exchange(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]], *,
        tags: Sequence[int] | None = None,
    ) -> list[Pending]:  # fmt: skip
        """Start several sends and receives that may cross; returns the sends', then the receives'.

        What is sent must not change before its `wait`, and every Pending must be kept. NCCL runs
        point-to-point calls of one stream in the order of their launch, so two ranks that each send
        first would wait for ever: there they go out as one group.

        Args:
            sends: tensors and the ranks they go to.
            receives: contiguous tensors and the ranks that fill them.
            tags: one for each, the sends' first. NCCL has none: it matches by order alone.
        """
        sends = [(x.contiguous(), to) for x, to in sends]
        if self._link is not None and self._link.groups_exchanges:
            with observed.along(self.name):
                works = self._link.start_grouped(sends, receives)
            self._look_after(works, "exchange")
            return [
                Pending(buffer, work, "exchange", self._explain)
                for (buffer, _), work in zip([*sends, *receives], works, strict=True)
            ]
        tags = [0] * (len(sends) + len(receives)) if tags is None else tags
        arriving = [
            self._start_message(out, source, tag, sent=False)
            for (out, source), tag in zip(receives, tags[len(sends) :], strict=True)
        ]
        leaving = [
            self._start_message(x, to, tag, sent=True)
            for (x, to), tag in zip(sends, tags, strict=False)
        ]
        return leaving + arriving

    def _start_message(self, x: Tensor, peer: int, tag: int, *, sent: bool) -> Pending:
        """Start one end of a message; where the world checks, compare it with the other end."""
        kind, way = ("send", "to") if sent else ("recv", "from")
        if not 0 <= peer < self.size or peer == self.rank:
            raise ValueError(
                f"{kind} with rank {peer} of {self._place}: this is rank {self.rank} of {self.size}"
            )
        if not x.is_contiguous():
            raise ValueError(f"recv needs a contiguous tensor; strides are {x.stride()}")
        mine, theirs = self.ranks[self.rank], self.ranks[peer]
        doing = f"{kind} {way} rank {theirs}"
        ends = (mine, theirs) if sent else (theirs, mine)
        try:
            said = None
            if self._agreement:
                said = self._agreement.announce(self.name, self.ranks, ends, tag, x, sent=sent)
            with observed.along(self.name):
                work = getattr(self._link, f"start_{kind}")(x, peer, tag)
            self._look_after([work], doing)
        except RuntimeError as error:
            self._explain(doing, error)
            raise
        return Pending(x, _Announced(said, work) if said else work, doing, self._explain)

    # ------------------------------------------------------------------ what must hold

    @property
    def _place(self) -> str:
        return f"the {self.name} axis {list(self.ranks)}"

    def _look_after(self, works: Sequence[Work], doing: str) -> None:
        if self._world is not None and self._world.late:
            self._world.late.add(works, f"{doing} on {self._place}", self.ranks)

    def _explain(self, doing: str, error: RuntimeError) -> None:
        """Raise, in place of an error that the backend gave, one with names; leave any other."""
        if self._world is not None and says_backend(error):
            place = f"{doing} on {self._place}"
            raise self._world.witness.explain(place, self.ranks, error) from error


class _Announced(NamedTuple):
    """A message whose two ends are compared before it is waited for."""

    said: Work
    work: Work

    def wait(self) -> None:
        self.said.wait()
        self.work.wait()
