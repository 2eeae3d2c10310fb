"""What autograd's engine can be asked."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import Variable


def inside_backward() -> bool:
    """Whether a backward runs in this thread; a forward inside it is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)


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
