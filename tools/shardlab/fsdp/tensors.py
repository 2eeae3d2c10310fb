"""The tensors inside whatever a module takes or returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in `value`: itself, or in tuples, lists, mappings and dataclasses."""
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
    """Call `hook` just before autograd runs the operation that made `tensor`.

    By then every `on_gradient` of the tensor has been called, in whatever order they were made.
    """
    if tensor.grad_fn is None:
        on_gradient(tensor, hook)
    else:
        tensor.grad_fn.register_prehook(hook)


def on_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call `hook` when autograd has the gradient of `tensor`, in every backward through it."""
    handle: RemovableHandle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    return handle
