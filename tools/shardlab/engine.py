"""What autograd's engine can be asked."""

from __future__ import annotations

import torch


def inside_backward() -> bool:
    """Whether a backward runs in this thread; a forward inside it is a recomputation."""
    return bool(torch._C._current_graph_task_id() != -1)
