"""The ledger: every collective and point-to-point of this rank, counted where it is dispatched.

    with Ledger() as ledger:
        loss = model(x)
        loss.backward()
    print(ledger.summary())

It is a `TorchDispatchMode`, so it sees each collective once, forward and backward, of any library:
our code, Megatron, DTensor, FSDP, DDP's reducer in C++; in real groups, and in one process under
torch's fake backend. Wrapping the functions of torch.distributed would miss half of these.

It counts the collectives that an algorithm *calls*, not the bytes on the wire: gloo's
reduce-scatter moves as many bytes as an all-reduce, but the ledger counts one reduce-scatter. A
link that implements a collective by other collectives, or by shared memory, reports the original
one with `tracing.record_as`.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from shardlab.comm.tracing import Tracer
from shardlab.layers.engine import inside_backward
from shardlab.proofs import dispatch_parser
from shardlab.proofs.collective import Call


class Entry(NamedTuple):
    """One collective, or one end of a point-to-point.

    Attributes:
        op, payload, wire: as in `Call`.
        ranks: global ranks of the group; (source, destination) for a point-to-point.
        axis: the axis's name, or the process group's name; "" if it has none.
        dtype: the dtype of the (first) tensor.
        phase: the label of `Ledger.phase`, or of `tracing.phase` (a pipeline sets "forward");
            otherwise "backward" inside autograd's engine, "" outside.

    """

    op: str
    payload: int
    wire: float
    ranks: tuple[int, ...]
    axis: str
    dtype: torch.dtype
    phase: str = ""


@dataclass(frozen=True)
class Total:
    """The number of entries, and the sums of their bytes."""

    count: int
    payload: int
    wire: float


class Ledger(Tracer):
    """Counts collectives while it is entered; may be entered again, and inside another ledger.

    Args:
        names: axis name → global ranks, to name groups that another library made over those ranks.

    Attributes:
        entries: the collectives, in the order of their start.

    """

    def __init__(self, names: Mapping[str, Sequence[int]] | None = None) -> None:
        """Start with no entries."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[Entry] = []
        self._names = {tuple(ranks): name for name, ranks in (names or {}).items()}
        self._phase = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count the collectives of `func`, and run it."""
        # A DTensor, for example, is first replaced by its local tensors and collectives, which are
        # dispatched here again.
        if any(_is_wrapper_subclass(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func.namespace in dispatch_parser.NAMESPACES:
            for request in dispatch_parser.parse_requests(func, args, kwargs):
                axis = self.axis_label or self._names.get(request.ranks, request.group)
                self.note(request.op, request.payload, request.ranks, axis, request.dtype)
        return func(*args, **kwargs)

    def record(self, op: str, payload: int, ranks: Sequence[int], dtype: torch.dtype) -> None:
        """Add the collective that `tracing.record_as` names."""
        self.note(op, payload, ranks, self.axis_label, dtype)

    def note(
        self, op: str, payload: int, ranks: Sequence[int], axis: str, dtype: torch.dtype
    ) -> None:
        """Add an entry, unless counting is paused."""
        if not self.is_paused:
            phase = self._phase or self.phase_label or ("backward" if inside_backward() else "")
            wire = Call(op, payload, len(ranks)).wire
            self.entries.append(Entry(op, payload, wire, tuple(ranks), axis, dtype, phase))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context manager: label the entries inside, also those of backward, with a phase."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    def select(
        self, op: str | None = None, *, axis: str | None = None, phase: str | None = None
    ) -> list[Entry]:
        """Return the entries of one op, axis and phase; None selects all."""
        return [
            entry
            for entry in self.entries
            if op in (None, entry.op)
            and axis in (None, entry.axis)
            and phase in (None, entry.phase)
        ]

    def total(
        self, op: str | None = None, *, axis: str | None = None, phase: str | None = None
    ) -> Total:
        """Return the number and the bytes of the entries that `select` returns."""
        entries = self.select(op, axis=axis, phase=phase)
        return Total(len(entries), sum(e.payload for e in entries), sum(e.wire for e in entries))

    def calls(
        self, op: str | None = None, *, axis: str | None = None, phase: str | None = None
    ) -> "Counter[Call]":
        """Return the entries that `select` returns as calls, to compare with `formulas` exactly."""
        entries = self.select(op, axis=axis, phase=phase)
        return Counter(Call(entry.op, entry.payload, len(entry.ranks)) for entry in entries)

    def summary(self) -> str:
        """Return a small table: phase, axis and op, with count, payload and wire bytes."""
        keys = dict.fromkeys((entry.phase, entry.axis, entry.op) for entry in self.entries)
        rows: list[tuple[str, ...]] = [("phase", "axis", "op", "count", "payload B", "wire B")]
        for phase, axis, op in keys:
            total = self.total(op, axis=axis, phase=phase)
            rows.append(
                (phase or "-", axis or "-", op, *(f"{number:,}" for number in astuple(total)))
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < 3 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )


def _is_wrapper_subclass(kind: type) -> bool:
    """Return whether operators on this tensor class are dispatched again as operators on others."""
    dispatch = kind.__torch_dispatch__  # type: ignore[attr-defined]
    return dispatch is not torch._C._disabled_torch_dispatch_impl and kind is not FakeTensor
