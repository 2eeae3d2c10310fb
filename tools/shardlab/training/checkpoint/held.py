"""What this rank holds of a model and its optimizer: boxes of whole tensors, named for the whole.

A checkpoint knows no ranks: it knows `layers.3.mlp.fc1.weight`, whole. This file says which box of
it stands here, and which one rank of the several that hold the same box writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.training.checkpoint.index import CheckpointError, StoredTensor
from shardlab.training.checkpoint.parts import Held, Part, parts_of

if TYPE_CHECKING:
    from shardlab.fsdp import FSDP

# Which kernels run is the program's choice, not part of what was trained.
SWITCHES = {"foreach", "fused", "capturable", "differentiable"}


def parts_in(chunks: Sequence[GPT | FSDP], grid: Grid) -> list[Part]:
    """Return what this rank keeps of its pieces of the model."""
    return [part for chunk in chunks for part in parts_of(chunk, grid)]


def of_parameters(parts: Sequence[Part]) -> list[Held]:
    """Return the boxes of the parameters."""
    return [box for part in parts for box in part.boxes(f"model/{part.name}", part.kept.detach())]


def of_optimizer(optimizer: Optimizer, parts: Sequence[Part]) -> list[Held]:
    """Return the boxes of the optimizer's state, `optimizer.exp_avg/layers.3…` and the like.

    A state of the shape of what is kept is cut as that is; a number without dimensions (the step
    count) is everybody's.

    Raises:
        CheckpointError: a state of another shape.
    """
    held: list[Held] = []
    for kept, lying in _trained(optimizer, parts):
        for key, value in optimizer.state.get(kept, {}).items():
            if value is None:
                continue
            cut = isinstance(value, Tensor) and value.shape == kept.shape
            if not cut and not (isinstance(value, Tensor) and value.dim() == 0):
                raise CheckpointError(
                    f"the optimizer's {key} of {lying[0].name} is neither of the parameter's shape "
                    "nor a tensor without dimensions: how to cut it for another grid is unknown"
                )
            for part in lying:
                path = f"optimizer.{key}/{part.name}"
                if cut:
                    held += part.boxes(path, value.detach())
                else:
                    held.append(Held(path, value, (), (), part.counts))
    return held


@dataclass(frozen=True)
class Room:
    """Where an optimizer's state is loaded into.

    Attributes:
        held: the boxes.
        state: the same tensors as `Optimizer.load_state_dict` wants its "state".
        numbers: those of the parameters that share a flat shard, with the one that stands in
            `state` for all of them.
    """

    held: list[Held] = field(default_factory=list)
    state: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    numbers: list[tuple[Held, Tensor]] = field(default_factory=list)

    def check(self) -> None:
        """Refuse numbers that differ where there is room for one.

        Raises:
            CheckpointError: names the parameter.
        """
        for held, shared in self.numbers:
            if held.tensor != shared:
                raise CheckpointError(
                    f"{held.name} is {held.tensor.item()} in the checkpoint, and {shared.item()} "
                    "of another parameter in the same flat shard, which an optimizer sees as one; "
                    "load it into a model without FSDP"
                )


def room_for_optimizer(
    optimizer: Optimizer, parts: Sequence[Part], tensors: Mapping[str, StoredTensor]
) -> Room:
    """Make room for the state that a checkpoint has of what this rank keeps."""
    saved: dict[str, list[str]] = {}
    for path in tensors:
        kind, _, name = path.partition("/")
        if kind.startswith("optimizer."):
            saved.setdefault(name, []).append(kind.removeprefix("optimizer."))
    room = Room()
    for i, (kept, lying) in enumerate(_trained(optimizer, parts)):
        state: dict[str, Tensor] = {}
        for key in dict.fromkeys(key for part in lying for key in saved.get(part.name, [])):
            for part in lying:
                path = f"optimizer.{key}/{part.name}"
                if path not in tensors:
                    raise CheckpointError(f"the checkpoint has no {path}, and {key} of others")
                dtype = _dtype(path, tensors[path])
                if tensors[path].shape:
                    whole = torch.zeros_like(kept, dtype=dtype, requires_grad=False)
                    room.held.extend(part.boxes(path, state.setdefault(key, whole)))
                else:
                    number = Held(path, torch.zeros((), dtype=dtype), (), (), False)
                    room.held.append(number)
                    room.numbers.append((number, state.setdefault(key, number.tensor)))
        if state:
            room.state[i] = state
    return room


def _dtype(path: str, entry: StoredTensor) -> torch.dtype:
    dtype = getattr(torch, entry.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"{path} has dtype {entry.dtype!r}, which torch does not know")
    return dtype


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


def _trained(
    optimizer: Optimizer, parts: Sequence[Part]
) -> Iterator[tuple[nn.Parameter, list[Part]]]:
    """The optimizer's tensors in its own order, and the parts that lie in each."""
    lying: dict[int, list[Part]] = {}
    for part in parts:
        lying.setdefault(id(part.kept), []).append(part)
    for group in optimizer.param_groups:
        for kept in group["params"]:
            if id(kept) not in lying:
                raise CheckpointError(
                    f"the optimizer has a parameter of shape {tuple(kept.shape)} that is none "
                    "of the model's; build it from model.parameters()"
                )
            yield kept, lying[id(kept)]
