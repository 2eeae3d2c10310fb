"""What autograd's engine can be asked, and what torch.compile is kept from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.autograd import Variable

uncompiled = _disable_dynamo  # compiler.disable, without importing the compiler for everybody


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


@uncompiled
def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call an autograd Function that communicates: a graph that torch.compile makes breaks here."""
    result: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return result
