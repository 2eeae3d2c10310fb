"""megatron-core's gradient norm on the CPU: its optimizer's choice of what counts, and its sum."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

from costlab.implementations.megatron import parallel_state

with warnings.catch_warnings(), patch.object(torch, "compile", lambda function: function):
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    from megatron.core import utils
    from megatron.core.optimizer import OptimizerConfig, clip_grads
    from megatron.core.optimizer import optimizer as optimizer_module


class _Torch:
    """The torch module, but with a `zeros` and a `tensor` that read device="cuda" as the CPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def zeros(self, *size: Any, **options: Any) -> Tensor:
        return torch.zeros(*size, **(options | {"device": "cpu"}))

    def tensor(self, data: Any, **options: Any) -> Tensor:
        return torch.tensor(data, **(options | {"device": "cpu"}))


def norm_of(parameters: Iterable[nn.Parameter], group: dist.ProcessGroup) -> float:
    """The norm of these parameters' `.grad`, as an optimizer takes it over this group."""
    with ExitStack() as stack:
        for module in (optimizer_module, clip_grads, utils):
            stack.enter_context(patch.object(module, "torch", _Torch()))
        inner = torch.optim.SGD(parameters, lr=0.1)
        optimizer = optimizer_module.FP32Optimizer(inner, OptimizerConfig(), lambda *_: None)
        optimizer.grad_stats_parallel_group = group
        optimizer.tp_group = parallel_state.get_tensor_model_parallel_group()
        return float(optimizer.get_grad_norm())
