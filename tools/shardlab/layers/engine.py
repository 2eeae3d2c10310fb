"""Queries of autograd's engine, and a cache for recomputation in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import get_gradient_edge

Value = TypeVar("Value")

_MAX_LABELS = 1024  # how many forwards of one module may wait for their backwards


def inside_backward() -> bool:
    """Return whether a backward runs in this thread; a forward inside it is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)


def will_accumulate(leaf: Tensor) -> bool:
    """Return whether the backward that runs in this thread accumulates a gradient for `leaf`."""
    accumulation = get_gradient_edge(leaf).node
    return bool(torch._C._will_engine_execute_node(accumulation))


class RecomputeCache(Generic[Value]):
    """Caches a value of each forward for its recomputation in backward (activation checkpointing).

    torch's `checkpoint`, of either kind, restores the state of torch's generator before it
    recomputes. So each forward draws a label from that generator, and a forward inside backward,
    which is a recomputation, finds the value under its label. A program that seeds the generator
    with the same number before two forwards gives both the same label. That is harmless if the
    first forward was recomputed before the second ran. Otherwise a recomputation under this label
    is refused.

    Args:
        name: the module's name in the model, for errors.
    """

    def __init__(self, name: str) -> None:
        """Start with an empty cache."""
        self._name = name
        self._values: dict[int, Value] = {}
        self._recomputed: set[int] = set()  # labels whose latest forward was recomputed
        self._ambiguous: set[int] = set()  # labels of several forwards that may be recomputed

    def __call__(self, compute: Callable[[], Value]) -> Value:
        """Return `compute()`; in a recomputation, the value of its forward.

        Raises:
            RuntimeError: a recomputation of a forward that was not seen, or of two forwards that
                began with the same state of torch's generator.
        """
        label = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        if inside_backward():
            self._refuse_unknown(label)
            self._recomputed.add(label)
            return self._values[label]
        if label in self._values and label not in self._recomputed:
            self._ambiguous.add(label)
        self._recomputed.discard(label)
        self._values.pop(label, None)
        self._values[label] = value = compute()
        if len(self._values) > _MAX_LABELS:
            oldest = next(iter(self._values))
            del self._values[oldest]
            self._recomputed.discard(oldest)
            self._ambiguous.discard(oldest)
        return value

    def clear(self) -> None:
        """Empty the cache, when no forward waits for its backward."""
        self._values.clear()
        self._recomputed.clear()
        self._ambiguous.clear()

    def _refuse_unknown(self, label: int) -> None:
        if label in self._ambiguous:
            raise RuntimeError(
                f"{self._name} is recomputed in backward, and two of its forwards began from the "
                "same state of torch's random numbers, so it can't tell which of the two runs "
                "again: call torch.manual_seed once before training, or with another number "
                "before each micro-batch"
            )
        if label not in self._values:
            raise RuntimeError(
                f"{self._name} is recomputed in backward and can't tell which of its forwards "
                "runs again: checkpoint with preserve_rng_state=True (torch's default), and "
                f"let at most {_MAX_LABELS} forwards await their backwards"
            )


class OnFailure:
    """Calls `failed` if the running backward raises, before the next backward starts.

    The engine calls its callbacks only after a backward that succeeds, but it releases them in any
    case.
    """

    def __init__(self, failed: Callable[[], object]) -> None:
        """Queue this object as a callback; only the engine holds a reference to it."""
        self._failed: Callable[[], object] | None = failed
        Variable._execution_engine.queue_callback(self)

    def __call__(self) -> None:
        """Note that the backward succeeded."""
        self._failed = None

    def __del__(self) -> None:
        """Call `failed`, unless the backward succeeded."""
        if self._failed is not None:
            self._failed()
