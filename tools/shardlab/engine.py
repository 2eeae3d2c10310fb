"""What autograd's engine can be asked, and what torch.compile is kept from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

uncompiled = _disable_dynamo  # compiler.disable, without importing the compiler for everybody


def inside_backward() -> bool:
    """Whether a backward runs in this thread; a forward inside it is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)


@uncompiled
def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call an autograd Function that communicates: a graph that torch.compile makes breaks here."""
    result: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return result
