"""Mixed precision: the dtypes of parameters, gradients and communication under FSDP.

    what                          dtype           lives
    shard (the optimizer's)       the model's     always, 1/n of the parameters a rank
    gathered parameters           param_dtype     while a unit is unsharded
    activations, their gradients  param_dtype     as autograd keeps them
    gradient over the whole axis  reduce_dtype    from the first gradient to the reduce-scatter
    reduced gradient (`.grad`)    the model's     until the optimizer drops it

The cast to `param_dtype` happens before the all-gather, on the shard: it halves what travels too.
Gradients are cast to `reduce_dtype` as they are copied into the flat gradient. Accumulation without
sync adds in `reduce_dtype`, as FSDP2 does; FSDP1 adds in `param_dtype`. Buffers keep their dtype.

PyTorch: `MixedPrecision` (fsdp/api.py) and `MixedPrecisionPolicy` (_fully_shard/_fsdp_api.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class MixedPrecision:
    """Dtypes of the working copies; None keeps the model's own.

    Args:
        param_dtype: the dtype of gathered parameters, and so of the computation.
        reduce_dtype: the dtype of the gradients that are reduced; None for `param_dtype`.
        cast_forward_inputs: cast floating inputs of the whole model to `param_dtype`.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True

    def cast(self, value: Any) -> Any:
        """Return `value` with every floating tensor in it cast to `param_dtype`."""
        if self.param_dtype is None or not self.cast_forward_inputs:
            return value
        return _cast_nested(value, self.param_dtype)


def _cast_nested(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _cast_nested(item, dtype) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast_nested(item, dtype) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_cast_nested(item, dtype) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        items = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **_cast_nested(items, dtype))
    return value
