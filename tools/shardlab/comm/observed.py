"""What whoever watches this rank is told: which axis, which phase, and when to look away.

A watcher is a torch dispatch mode and sees every collective by itself (`shardlab.proofs.ledger` is
one). What it can't see there, it is told here. Nearly free where nobody watches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is told things.

    Attributes:
        told_axis: what the axis is called on which things are sent now; "" if nobody said.
        told_phase: "forward", say; "" if nobody said.
        told_muted: whether what is sent now is part of something that was told already.

    """

    told_axis = ""
    told_phase = ""
    told_muted = False


def observers() -> list[Observer]:
    """Return those who watch now."""
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Observer)]


def watched() -> bool:
    """Whether anybody watches."""
    return bool(torch._C._len_torch_dispatch_stack())


def along(axis: str) -> AbstractContextManager[None]:
    """Name the axis of what is sent inside, where the process group can't tell."""
    return _told("told_axis", axis) if watched() else NOTHING


def during(phase: str) -> AbstractContextManager[None]:
    """Name the phase of what is sent inside, to those who have no name for it yet."""
    return _told("told_phase", phase, keep=True) if watched() else NOTHING


def muted() -> AbstractContextManager[None]:
    """Have nobody note what is sent inside."""
    return _told("told_muted", True) if watched() else NOTHING


@contextlib.contextmanager
def _told(what: str, value: object, *, keep: bool = False) -> Iterator[None]:
    before = [(observer, getattr(observer, what)) for observer in observers()]
    before = [(observer, was) for observer, was in before if not (keep and was)]
    for observer, _ in before:
        setattr(observer, what, value)
    try:
        yield
    finally:
        for observer, was in before:
            setattr(observer, what, was)
