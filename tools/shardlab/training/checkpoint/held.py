"""What this rank holds of a model and its optimizer: boxes of whole tensors, named for the whole.

A checkpoint knows no ranks: it knows `layers.3.mlp.fc1.weight`, whole. This file says which box of
it stands here, and which one rank of the several that hold the same box writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import sharding_of
from shardlab.training.checkpoint.index import CheckpointError, Entry

# Which kernels run is the program's choice, not part of what was trained.
SWITCHES = {"foreach", "fused", "capturable", "differentiable"}


@dataclass(frozen=True)
class Held:
    """A box of a whole tensor.

    Attributes:
        name: of the whole.
        tensor: the box itself; a load writes into it.
        shape: of the whole.
        offset: where the box begins.
        writes: whether this rank is the one that saves it.
    """

    name: str
    tensor: Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    writes: bool


def of_parameters(chunks: Sequence[GPT], grid: Grid) -> list[Held]:
    """Return the boxes of the parameters of this rank's pieces of the model."""
    return [
        _like(f"model/{name}", parameter, parameter.detach(), _writes(chunks, grid, parameter))
        for chunk in chunks
        for name, parameter in chunk.named_parameters()
    ]


def of_optimizer(optimizer: Optimizer, chunks: Sequence[GPT], grid: Grid) -> list[Held]:
    """Return the boxes of the optimizer's state, `optimizer.exp_avg/layers.3…` and the like.

    A state of the parameter's shape is cut as the parameter is; a number without dimensions (the
    step count) is everybody's.

    Raises:
        CheckpointError: a state of another shape.
    """
    held = []
    for name, parameter in _trained(optimizer, chunks):
        writes = _writes(chunks, grid, parameter)
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is None:
                continue
            path = f"optimizer.{key}/{name}"
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                held.append(_like(path, parameter, value.detach(), writes))
            elif isinstance(value, Tensor) and value.dim() == 0:
                held.append(_number(path, value, chunks, grid, parameter))
            else:
                raise CheckpointError(
                    f"the optimizer's {key} of {name} is neither of the parameter's shape nor a "
                    "tensor without dimensions: how to cut it for another grid is unknown"
                )
    return held


def room_for_optimizer(
    optimizer: Optimizer, chunks: Sequence[GPT], tensors: Mapping[str, Entry]
) -> tuple[list[Held], dict[int, dict[str, Tensor]]]:
    """Make room for the state that a checkpoint has of this rank's parameters.

    Returns:
        boxes to load into, and the same tensors as `Optimizer.load_state_dict` wants its "state".
    """
    saved: dict[str, list[str]] = {}
    for path in tensors:
        kind, _, name = path.partition("/")
        if kind.startswith("optimizer."):
            saved.setdefault(name, []).append(kind.removeprefix("optimizer."))
    held, state = [], {}
    for i, (name, parameter) in enumerate(_trained(optimizer, chunks)):
        room: dict[str, Tensor] = {}
        for key in saved.get(name, []):
            path = f"optimizer.{key}/{name}"
            entry = tensors[path]
            dtype = getattr(torch, entry.dtype, None)
            if not isinstance(dtype, torch.dtype):
                raise CheckpointError(
                    f"{path} has dtype {entry.dtype!r}, which torch does not know"
                )
            if entry.shape:
                room[key] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
                held.append(_like(path, parameter, room[key], False))
            else:
                room[key] = torch.zeros((), dtype=dtype)
                held.append(Held(path, room[key], (), (), False))
        if room:
            state[i] = room
    return held, state


def settings(optimizer: Optimizer) -> list[dict[str, object]]:
    """Return each parameter group's settings as plain values.

    Raises:
        CheckpointError: one that is no number, flag, or list of numbers.
    """
    groups = []
    for group in optimizer.param_groups:
        plain = {}
        for key, value in group.items():
            if key == "params" or key in SWITCHES:
                continue
            number = isinstance(value, Tensor) and value.dim() == 0
            plain[key] = value.item() if number else value
            if not _plain(plain[key]):
                raise CheckpointError(
                    f"the optimizer's setting {key} = {value!r} is no number, flag or list of "
                    "numbers; keep it out of the parameter group"
                )
        groups.append(plain)
    return groups


def restored_groups(
    optimizer: Optimizer, saved: list[dict[str, object]]
) -> list[dict[str, object]]:
    """Return "param_groups" as `load_state_dict` wants them, with the saved settings.

    Raises:
        CheckpointError: another number of groups, or settings that this optimizer doesn't have.
    """
    current = optimizer.state_dict()["param_groups"]
    if len(current) != len(saved):
        raise CheckpointError(
            f"the checkpoint's optimizer has {len(saved)} parameter groups, this one "
            f"{len(current)}; group parameters alike"
        )
    for group, values in zip(current, saved, strict=True):
        wrong = [k for k, v in values.items() if k not in group or k == "params" or not _plain(v)]
        if wrong:
            raise CheckpointError(
                f"the checkpoint was written with an optimizer that has {', '.join(wrong)}; "
                f"{type(optimizer).__name__} has not"
            )
        group.update({k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    return list(current)


def _plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(v, int | float) for v in value)
    return value is None or isinstance(value, bool | int | float)


def _trained(optimizer: Optimizer, chunks: Sequence[GPT]) -> Iterator[tuple[str, nn.Parameter]]:
    """The optimizer's parameters, by name, in its own order."""
    names = {id(p): name for chunk in chunks for name, p in chunk.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise CheckpointError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is none "
                    "of the model's; build it from model.parameters()"
                )
            yield names[id(parameter)], parameter


def _writes(chunks: Sequence[GPT], grid: Grid, parameter: nn.Parameter) -> bool:
    repeated = sharding_of(parameter) is None and grid.tensor.rank > 0
    return not repeated and _first_holder(chunks, grid, parameter)


def _first_holder(chunks: Sequence[GPT], grid: Grid, parameter: nn.Parameter) -> bool:
    """Whether no data rank and no earlier stage has the same."""
    copy = any(parameter is chunk.tied_weight and not chunk.first for chunk in chunks)
    return not copy and grid.data.rank == 0


def _like(name: str, parameter: nn.Parameter, value: Tensor, writes: bool) -> Held:
    """The box of something that is cut as `parameter` is; its padding is left out."""
    sharding = sharding_of(parameter)
    if sharding is None:
        return Held(name, value, tuple(value.shape), (0,) * value.dim(), writes)
    dim, length = sharding.dim, value.shape[sharding.dim]
    begin = min(sharding.axis.rank * length, sharding.size)
    inside = min(length, sharding.size - begin)
    shape, offset = list(value.shape), [0] * value.dim()
    shape[dim], offset[dim] = sharding.size, begin
    box = value.narrow(dim, 0, inside)
    return Held(name, box, tuple(shape), tuple(offset), writes and inside > 0)


def _number(
    name: str, value: Tensor, chunks: Sequence[GPT], grid: Grid, parameter: nn.Parameter
) -> Held:
    """A number that all ranks with a part of the parameter have alike."""
    writes = grid.tensor.rank == 0 and _first_holder(chunks, grid, parameter)
    return Held(name, value, (), (), writes)
