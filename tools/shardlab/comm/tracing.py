"""Labels for tracers: the current axis, the current phase, and a way to pause counting.

A tracer is a torch dispatch mode that sees every collective of this rank; `shardlab.proofs.ledger`
is one. The dispatched operator doesn't say for which axis or in which phase it runs, so the code
that starts it says so here. Without an active tracer each of these calls costs almost nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

NO_CONTEXT: AbstractContextManager[None] = contextlib.nullcontext()


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode with labels for the collectives that it sees.

    Attributes:
        axis_label: the name of the axis over which the current collective runs; "" if not set.
        phase_label: the current phase, such as "forward"; "" if not set.
        is_paused: whether the current collectives are parts of one that was already counted.

    """

    axis_label = ""
    phase_label = ""
    is_paused = False

    def record(self, op: str, payload: int, ranks: Sequence[int], dtype: torch.dtype) -> None:
        """Note a collective that `record_as` names."""


def active_tracers() -> list[Tracer]:
    """Return the tracers that are entered now."""
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Tracer)]


def is_tracing() -> bool:
    """Return whether any dispatch mode is active."""
    return bool(torch._C._len_torch_dispatch_stack())


def axis(name: str) -> AbstractContextManager[None]:
    """Context manager: label the collectives inside with the name of their axis."""
    return _set_attribute("axis_label", name) if is_tracing() else NO_CONTEXT


def phase(name: str) -> AbstractContextManager[None]:
    """Context manager: label the collectives inside with a phase, unless one is set already."""
    return _set_attribute("phase_label", name, keep_existing=True) if is_tracing() else NO_CONTEXT


def paused() -> AbstractContextManager[None]:
    """Context manager: tracers don't count the collectives inside."""
    return _set_attribute("is_paused", True) if is_tracing() else NO_CONTEXT


def record_as(
    op: str, payload: int, ranks: Sequence[int], dtype: torch.dtype
) -> AbstractContextManager[None]:
    """Context manager: tracers record this collective instead of those that run inside.

    Args:
        op: the collective, as in `shardlab.proofs.collective.Call`.
        payload: its bytes.
        ranks: global ranks; (source, destination) for a message.
        dtype: the dtype of its tensors.
    """
    return _record_as(op, payload, ranks, dtype) if is_tracing() else NO_CONTEXT


@contextlib.contextmanager
def _record_as(op: str, payload: int, ranks: Sequence[int], dtype: torch.dtype) -> Iterator[None]:
    for tracer in active_tracers():
        tracer.record(op, payload, ranks, dtype)
    with paused():
        yield


@contextlib.contextmanager
def _set_attribute(attribute: str, value: object, *, keep_existing: bool = False) -> Iterator[None]:
    saved = [(tracer, getattr(tracer, attribute)) for tracer in active_tracers()]
    saved = [(tracer, previous) for tracer, previous in saved if not (keep_existing and previous)]
    for tracer, _ in saved:
        setattr(tracer, attribute, value)
    try:
        yield
    finally:
        for tracer, previous in saved:
            setattr(tracer, attribute, previous)
