"""How a parameter is sharded: over which axis and along which dim, and how to gather it.

The mark is an attribute of the parameter, where Megatron writes `tensor_model_parallel` and
`partition_dim` (`set_tensor_model_parallel_attributes` in megatron/core/tensor_parallel/layers.py).
Gradient clipping reads from it which parameters are replicated, and checkpoints read how to join
the slices.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.layers.ops import gather_along, local_slice

# The marks of a parameter, which hold for its copies too; the last is set in partial_gradients.py.
MARKS = {"sharding", "copies_axis", "partial_gradient"}


@dataclass(frozen=True)
class Sharding:
    """A cut into equal slices, in rank order.

    Attributes:
        axis: the axis whose ranks hold the slices.
        dim: the dim that is cut.
        size: the length of the whole tensor along `dim`.
        padded: that length with padding at the end, a multiple of the axis's size.

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
        return local_slice(whole, self.axis, self.dim).clone(memory_format=torch.contiguous_format)

    def whole(self, local: Tensor) -> Tensor:
        """Return the whole tensor, without padding; every rank of the axis calls this."""
        return gather_along(local, self.axis, self.dim).narrow(self.dim, 0, self.size)


def mark(parameter: nn.Parameter, sharding: Sharding) -> nn.Parameter:
    """Mark `parameter` as one slice of a larger tensor; return it."""
    parameter.sharding = sharding  # type: ignore[attr-defined]
    return parameter


def sharding_of(parameter: Tensor) -> Sharding | None:
    """Return how `parameter` is sharded; None if every rank holds it whole."""
    sharding: Sharding | None = getattr(parameter, "sharding", None)
    return sharding


def mark_copies(parameter: nn.Parameter, axis: Axis) -> nn.Parameter:
    """Mark which ranks hold copies of an expert's parameter (not the data ranks); return it."""
    parameter.copies_axis = axis  # type: ignore[attr-defined]
    return parameter


def copies_of(parameter: Tensor) -> Axis | None:
    """Return the ranks that `mark_copies` has set; None if the data ranks hold copies."""
    copies: Axis | None = getattr(parameter, "copies_axis", None)
    return copies


def whole(parameter: nn.Parameter, value: Tensor | None = None) -> Tensor:
    """Return the whole tensor of a sharded parameter; every rank of its axis must call this.

    Args:
        parameter: the parameter, whose mark says how it is sharded.
        value: a tensor that is sharded in the same way, to gather instead of the parameter's value
            (its gradient, an optimizer's moment).

    """
    local = parameter.detach() if value is None else value
    sharding = sharding_of(parameter)
    return local if sharding is None else sharding.whole(local)


def local(parameter: Tensor, whole: Tensor) -> Tensor:
    """Return this rank's slice of the whole tensor of `parameter`; all of it if that isn't cut."""
    sharding = sharding_of(parameter)
    return whole if sharding is None else sharding.local(whole)


def whole_parameters(module: nn.Module) -> dict[str, Tensor]:
    """Return every whole parameter of `module`, by name; every rank of the axes must call this."""
    return {name: whole(p).clone() for name, p in module.named_parameters()}


def load_whole(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy whole tensors, by name, into this rank's slices; other stages' names are ignored.

    Raises:
        KeyError: `state` lacks one of the module's parameters.
        ValueError: a tensor has another shape than the whole parameter.

    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in state:
                raise KeyError(f"the state has no {name}; it has {', '.join(sorted(state))}")
            piece = local(parameter, state[name])
            if piece.shape != parameter.shape:
                raise ValueError(
                    f"{name}: expected a slice of shape {tuple(parameter.shape)}, found "
                    f"{tuple(piece.shape)}; was the state saved from another GPTConfig?"
                )
            torch._foreach_copy_([parameter, getattr(parameter, "master", parameter)], [piece] * 2)


def is_first(model: nn.Module) -> bool:
    """Return whether `model` is the first stage, which counts and saves a tied weight.

    Raises:
        ValueError: the model doesn't say.
    """
    first = getattr(model, "first", None)
    if first is None:
        raise ValueError(
            f"{type(model).__name__}.tied_weight is a copy of another stage's, and nothing says "
            "which stage counts it: set model.first = True on the first stage, False on the others"
        )
    return bool(first)


class CopyableModule(nn.Module):
    """A module whose deep copies keep the marks of its parameters.

    An average of the weights begins as `copy.deepcopy(model)`. torch copies a parameter's values
    but not its marks. A copy without marks of sharding or partial gradients would still train, clip
    and save, with wrong results.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the module as torch does, and mark the copies of its parameters."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        for name, parameter in self._parameters.items():
            if parameter is not None:
                marks = {m: noted for m, noted in parameter.__dict__.items() if m in MARKS}
                copied.get_parameter(name).__dict__.update(marks)
        return copied
