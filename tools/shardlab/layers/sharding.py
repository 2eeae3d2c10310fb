"""How a parameter is cut: over which axis, along which dim; and the way back to the whole.

The mark stands on the parameter itself, where Megatron writes `tensor_model_parallel` and
`partition_dim` (`set_tensor_model_parallel_attributes` in megatron/core/tensor_parallel/layers.py).
Whoever clips gradients reads there what is replicated; whoever writes a checkpoint, how to join.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.ops import gathered, own_slice

# All that is noted on a parameter and holds for its copies too; the last in partial_gradients.py.
MARKS = {"sharding", "copies_axis", "partial_gradient"}


@dataclass(frozen=True)
class Sharding:
    """A cut into equal slices, in rank order.

    Attributes:
        axis: the slices lie on its ranks.
        dim: the dim that is cut.
        size: length of the whole along `dim`.
        padded: the same with padding at the end, a multiple of the axis's size.

    """

    axis: Axis
    dim: int
    size: int
    padded: int

    def local(self, whole: Tensor) -> Tensor:
        """Return this rank's slice of `whole` (length `size` along `dim`), zeros for padding.

        Raises:
            ValueError: `whole` has another length, or the axis does not divide the padded one.

        """
        if whole.shape[self.dim] != self.size:
            raise ValueError(
                f"expected a whole tensor of length {self.size} along dim {self.dim}, found shape "
                f"{tuple(whole.shape)}; give it whole and without padding"
            )
        if self.padded != self.size:
            shape = list(whole.shape)
            shape[self.dim] = self.padded - self.size
            whole = torch.cat([whole, whole.new_zeros(shape)], self.dim)
        return own_slice(whole, self.axis, self.dim).clone(memory_format=torch.contiguous_format)

    def whole(self, local: Tensor) -> Tensor:
        """Return the whole tensor, without padding; every rank of the axis calls this."""
        return gathered(local, self.axis, self.dim).narrow(self.dim, 0, self.size)


def mark(parameter: nn.Parameter, sharding: Sharding) -> nn.Parameter:
    """Note on `parameter` that it is one slice of a larger one; return it."""
    parameter.sharding = sharding  # type: ignore[attr-defined]
    return parameter


def sharding_of(parameter: Tensor) -> Sharding | None:
    """Return how `parameter` is cut; None for one that every rank holds whole."""
    sharding: Sharding | None = getattr(parameter, "sharding", None)
    return sharding


def mark_copies(parameter: nn.Parameter, axis: Axis) -> nn.Parameter:
    """Note which ranks hold copies of `parameter`, if not the data ranks (experts); return it."""
    parameter.copies_axis = axis  # type: ignore[attr-defined]
    return parameter


def copies_of(parameter: Tensor) -> Axis | None:
    """Return the ranks that `mark_copies` noted; None: the data ranks hold copies."""
    copies: Axis | None = getattr(parameter, "copies_axis", None)
    return copies


def whole(parameter: nn.Parameter, value: Tensor | None = None) -> Tensor:
    """Return a parameter whole; every rank of its axis calls this.

    Args:
        parameter: says how it is cut.
        value: something cut alike to join instead (its gradient, an optimizer's moment).

    """
    local = parameter.detach() if value is None else value
    sharding = sharding_of(parameter)
    return local if sharding is None else sharding.whole(local)


def whole_parameters(module: nn.Module) -> dict[str, Tensor]:
    """Return every parameter of `module` whole, by name; every rank of the axes calls this."""
    return {name: whole(p).clone() for name, p in module.named_parameters()}


def load_whole(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy whole tensors, by name, into this rank's slices; names of other stages are left alone.

    Raises:
        KeyError: `state` lacks one of the module's parameters.
        ValueError: a tensor has another shape than the whole parameter.

    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in state:
                raise KeyError(f"the state has no {name}; it has {', '.join(sorted(state))}")
            sharding = sharding_of(parameter)
            local = state[name] if sharding is None else sharding.local(state[name])
            if local.shape != parameter.shape:
                raise ValueError(
                    f"{name}: expected a slice of shape {tuple(parameter.shape)}, found "
                    f"{tuple(local.shape)}; was the state saved from another GPTConfig?"
                )
            torch._foreach_copy_([parameter, getattr(parameter, "master", parameter)], [local] * 2)


class CopyableModule(nn.Module):
    """A module that holds marked parameters, whose deep copies keep the marks.

    An average of the weights begins as `copy.deepcopy(model)`. torch copies a parameter's values
    and nothing that was noted on it; a copy that has forgotten how it is cut, or which gradients
    are partial, still trains, clips and saves: wrongly.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy as any module is, and mark the copies."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        for name, parameter in self._parameters.items():
            if parameter is not None:
                marks = {m: noted for m, noted in parameter.__dict__.items() if m in MARKS}
                copied.get_parameter(name).__dict__.update(marks)
        return copied
