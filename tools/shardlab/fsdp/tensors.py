"""The tensors inside a module's arguments or results, and hooks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in `value`, which may be a tensor, tuple, list, mapping or dataclass."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name))


def before_backward_of(tensor: Tensor, hook: Callable[[Any], None]) -> None:
    """Call `hook` just before autograd runs the backward of the operation that made `tensor`.

    All `on_gradient` hooks of the tensor have been called by then, in any order of registration.
    """
    if tensor.grad_fn is None:
        on_gradient(tensor, hook)
    else:
        tensor.grad_fn.register_prehook(hook)


def on_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call `hook` when autograd has the gradient of `tensor`, in every backward through it."""
    handle: RemovableHandle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    return handle
