"""Messages from one rank of an axis to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from shardlab.comm import observed
from shardlab.comm.pending import Pending, Work, says_backend

if TYPE_CHECKING:
    from shardlab.comm.faults import Witness


class Ranks(Protocol):
    """What an axis needs of all the ranks: a `World` is such."""

    rank: int
    backend: str
    wide_sums: bool
    witness: Witness
    agreement: Any  # shardlab/proofs/agreement.py, where the world checks
    late: Any  # late.py, on GPUs

    def connect(self, ranks: tuple[int, ...], link: str) -> Any:
        """Return what carries an axis over `ranks`."""

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's process group over `ranks`."""


class PointToPoint:
    """What an axis sends and receives: `Axis` is one of these."""

    name: str
    ranks: tuple[int, ...]
    size: int
    rank: int
    _world: Ranks | None
    _agreement: Any
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
        ends = (self.ranks[self.rank], self.ranks[to])
        start = lambda: self._link.start_send(source, to, tag)  # noqa: E731
        return self._message(source, f"send to rank {self.ranks[to]}", start, ends, tag, sent=True)

    def start_recv(self, out: Tensor, source: int, *, tag: int = 0) -> Pending:
        """Start receiving into `out`, a contiguous tensor of the sender's shape and dtype."""
        self._peer("recv", source)
        if not out.is_contiguous():
            raise ValueError(f"recv needs a contiguous tensor; strides are {out.stride()}")
        ends = (self.ranks[source], self.ranks[self.rank])
        start = lambda: self._link.start_recv(out, source, tag)  # noqa: E731
        place = f"recv from rank {self.ranks[source]}"
        return self._message(out, place, start, ends, tag, sent=False)

    def _message(
        self, x: Tensor, doing: str, start: Callable[[], Work], ends: tuple[int, int], tag: int, *,
        sent: bool,
    ) -> Pending:  # fmt: skip
        """Start one end of a message; where the world checks, compare it with the other end."""
        try:
            said = None
            if self._agreement:
                said = self._agreement.announce(self.name, self.ranks, ends, tag, x, sent=sent)
            with observed.along(self.name):
                work = start()
            self._look_after([work], doing)
        except RuntimeError as error:
            self._explain(doing, error)
            raise
        return Pending(x, _Announced(said, work) if said else work, doing, self._explain)

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
        if self._link is not None and self._link.groups_exchanges:
            ours = [(x.contiguous(), to) for x, to in sends]
            with observed.along(self.name):
                works = self._link.start_grouped(ours, receives)
            self._look_after(works, "exchange")
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

    def _look_after(self, works: Sequence[Work], doing: str) -> None:
        if self._world is not None and self._world.late:
            self._world.late.add(works, f"{doing} on {self._place}", self.ranks)

    def _explain(self, doing: str, error: RuntimeError) -> None:
        """Raise, in place of an error that the backend gave, one with names; leave any other."""
        if self._world is not None and says_backend(error):
            place = f"{doing} on {self._place}"
            raise self._world.witness.explain(place, self.ranks, error) from error

    def _peer(self, kind: str, peer: int) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            raise ValueError(
                f"{kind} with rank {peer} of {self._place}: this is rank {self.rank} of {self.size}"
            )


class _Announced(NamedTuple):
    """A message whose two ends are compared before it is waited for."""

    said: Work
    work: Work

    def wait(self) -> None:
        self.said.wait()
        self.work.wait()
