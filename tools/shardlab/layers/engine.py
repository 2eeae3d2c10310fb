"""What autograd's engine can be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch.autograd import Variable

Made = TypeVar("Made")

_LABELS = 1024  # kept: how many forwards of one place may await their backwards


def inside_backward() -> bool:
    """Whether a backward runs in this thread; a forward inside it is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)


class Kept(Generic[Made]):
    """What a forward made, for its recomputation inside backward (activation checkpointing).

    torch's `checkpoint`, of either kind, sets torch's own generator back to where it stood. So each
    forward draws a label from that generator, and a forward inside backward, which is a
    recomputation, takes what was made under its label. (Where two forwards that await their
    backwards began from one state, seeded anew for each, the label is the later one's.)

    Args:
        name: of the place in the model, for errors.
    """

    def __init__(self, name: str) -> None:
        """Keep nothing yet."""
        self._name = name
        self._made: dict[int, Made] = {}

    def __call__(self, make: Callable[[], Made]) -> Made:
        """Return what `make` makes; in a recomputation, what it made in the forward.

        Raises:
            RuntimeError: a recomputation of a forward that was not seen.
        """
        label = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        if inside_backward():
            if label not in self._made:
                raise RuntimeError(
                    f"{self._name} is recomputed in backward and can't tell which of its forwards "
                    "runs again: checkpoint with preserve_rng_state=True (torch's default), and "
                    f"let at most {_LABELS} forwards await their backwards"
                )
            return self._made[label]
        self._made.pop(label, None)
        self._made[label] = made = make()
        if len(self._made) > _LABELS:
            del self._made[next(iter(self._made))]
        return made

    def clear(self) -> None:
        """Forget all: no forward awaits its backward."""
        self._made.clear()


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
