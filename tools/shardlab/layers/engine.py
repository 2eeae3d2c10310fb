"""What autograd's engine can be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import get_gradient_edge

Made = TypeVar("Made")

_LABELS = 1024  # kept: how many forwards of one place may await their backwards


def inside_backward() -> bool:
    """Whether a backward runs in this thread; a forward inside it is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)


def will_run(leaf: Tensor) -> bool:
    """Whether the backward that runs in this thread accumulates a gradient for `leaf`."""
    accumulation = get_gradient_edge(leaf).node
    return bool(torch._C._will_engine_execute_node(accumulation))


class Kept(Generic[Made]):
    """What a forward made, for its recomputation inside backward (activation checkpointing).

    torch's `checkpoint`, of either kind, sets torch's own generator back to where it stood. So each
    forward draws a label from that generator, and a forward inside backward, which is a
    recomputation, takes what was made under its label. A program that seeds the generator alike
    before two forwards gives both one label. That does no harm where the first was recomputed
    before the second ran; where it was not, a recomputation under this label is refused.

    Args:
        name: of the place in the model, for errors.
    """

    def __init__(self, name: str) -> None:
        """Keep nothing yet."""
        self._name = name
        self._made: dict[int, Made] = {}
        self._recomputed: set[int] = set()  # labels whose latest forward has run again
        self._ambiguous: set[int] = set()  # labels of several forwards that may yet run again

    def __call__(self, make: Callable[[], Made]) -> Made:
        """Return what `make` makes; in a recomputation, what it made in the forward.

        Raises:
            RuntimeError: a recomputation of a forward that was not seen, or of one of two forwards
                that began from the same state of torch's generator.
        """
        label = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        if inside_backward():
            self._refuse_unknown(label)
            self._recomputed.add(label)
            return self._made[label]
        if label in self._made and label not in self._recomputed:
            self._ambiguous.add(label)
        self._recomputed.discard(label)
        self._made.pop(label, None)
        self._made[label] = made = make()
        if len(self._made) > _LABELS:
            oldest = next(iter(self._made))
            del self._made[oldest]
            self._recomputed.discard(oldest)
            self._ambiguous.discard(oldest)
        return made

    def clear(self) -> None:
        """Forget all: no forward awaits its backward."""
        self._made.clear()
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
        if label not in self._made:
            raise RuntimeError(
                f"{self._name} is recomputed in backward and can't tell which of its forwards "
                "runs again: checkpoint with preserve_rng_state=True (torch's default), and "
                f"let at most {_LABELS} forwards await their backwards"
            )


class OnFailure:
    """Calls `failed` if the backward that runs raises, in time for the next one.

    The engine calls back only where a backward ends well, but it drops the callback in any case.
    """

    def __init__(self, failed: Callable[[], object]) -> None:
        """Queue this as a callback; the engine alone keeps it."""
        self._failed: Callable[[], object] | None = failed
        Variable._execution_engine.queue_callback(self)

    def __call__(self) -> None:
        """All went well."""
        self._failed = None

    def __del__(self) -> None:
        """Tell, unless all went well."""
        if self._failed is not None:
            self._failed()
