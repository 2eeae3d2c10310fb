"""This rank's slices of a model's parameters and of its optimizer's state, by whole tensor.

A checkpoint has whole tensors, such as `layers.3.mlp.fc1.weight`, and no ranks. This file lists
which slices of them this rank holds, and which of the ranks that hold the same slice writes it.

Without FSDP a rank stores a parameter, or its slice over the tensor axis, in a tensor of its own:
the parameter itself or its master. Under FSDP it stores flat shards, each with runs of many
parameters. In both cases the optimizer updates the stored tensor, and the optimizer's state has
that tensor's shape. So the position of a parameter is also the position of its moments. A
checkpoint doesn't depend on it: a run is cut into boxes of the whole parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shardlab.fsdp import FSDP
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import copies_of, is_first, sharding_of
from shardlab.training.checkpoint.index import CheckpointError, StoredTensor
from shardlab.training.masters import master_of

# Settings that choose kernels belong to the program, not to the checkpoint.
SWITCHES = {"foreach", "fused", "capturable", "differentiable"}


@dataclass(frozen=True)
class TensorSlice:
    """A box of a whole tensor.

    Attributes:
        name: the whole tensor's name.
        tensor: the box; a load writes into it.
        shape: the whole tensor's shape.
        offset: the box's begin in the whole tensor.
        writes: whether this rank saves the box.
    """

    name: str
    tensor: Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    writes: bool


@dataclass(frozen=True, eq=False)
class ParameterRun:
    """A run of consecutive elements of a parameter, in a tensor that this rank stores.

    Attributes:
        name: the parameter's name in the whole model.
        parameter: this rank's slice over the tensor axis, with its marks.
        tensor: the stored tensor, which the optimizer updates.
        start, stop: the run's range in the flattened tensor.
        offset: the run's begin in the flattened parameter.
        writes: whether this rank, of those that store the same run, saves it.
        writes_scalars: whether this rank saves the parameter's 0-dim states, such as its step
            count.
    """

    name: str
    parameter: nn.Parameter
    tensor: nn.Parameter
    start: int
    stop: int
    offset: int
    writes: bool
    writes_scalars: bool

    def slice_tensor(self, path: str, tensor: Tensor) -> Iterator[TensorSlice]:
        """Yield the slices of the run in `tensor`, which has the stored tensor's shape.

        Padding isn't part of a slice.
        """
        values = tensor.view(-1)[self.start : self.stop]
        sharding = sharding_of(self.parameter)
        whole = list(self.parameter.shape)
        begin = 0
        if sharding is not None:
            begin = sharding.axis.rank * whole[sharding.dim]
            whole[sharding.dim] = sharding.size
        for position, shape in boxes_of_run(self.parameter.shape, self.offset, len(values)):
            length = prod(shape)
            box, values = values[:length].view(shape), values[length:]
            offset = list(position)
            if sharding is not None:
                dim = sharding.dim
                offset[dim] += begin
                inside = min(shape[dim], sharding.size - offset[dim])
                if inside <= 0:
                    continue
                box = box.narrow(dim, 0, inside)
            yield TensorSlice(path, box, tuple(whole), tuple(offset), self.writes)


def boxes_of_run(
    shape: Sequence[int], offset: int, length: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (offset, shape) of the boxes that make up a run of a tensor's elements, in order.

    They are the end of a first row, whole rows, and the beginning of a last row; the first and the
    last row are cut recursively.
    """
    if length == 0:
        return
    if len(shape) <= 1:
        yield ((offset,), (length,)) if shape else ((), ())
        return
    row = prod(shape[1:])
    first, inside = divmod(offset, row)
    if inside or length < row:
        head = min(row - inside, length)
        for position, size in boxes_of_run(shape[1:], inside, head):
            yield (first, *position), (1, *size)
        yield from boxes_of_run(shape, offset + head, length - head)
        return
    rows = length // row
    yield (first, *(0,) * (len(shape) - 1)), (rows, *shape[1:])
    yield from boxes_of_run(shape, offset + rows * row, length - rows * row)


def iterate_runs(chunk: nn.Module, grid: Grid) -> Iterator[ParameterRun]:
    """Yield this rank's runs of the parameters of one of its pieces of the model."""
    copied = names_of_copies(chunk)
    for name, parameter, stored, run in _iterate_tensors(chunk):
        is_tied_copy = name in copied  # the first stage writes it
        of_expert = copies_of(parameter)
        # FSDP shards an expert over the ranks that had its copies; replicas are those of a run.
        copies = chunk.replicate_axis if isinstance(chunk, FSDP) else of_expert or grid.replicas
        tensor_axis = grid.expert_tensor if of_expert else grid.tensor
        is_first_replica = copies.rank == 0 and not is_tied_copy
        first = is_first_replica and tensor_axis.rank == 0
        writes = is_first_replica if sharding_of(parameter) is not None else first
        start, stop, offset = run
        begins = start < stop and offset == 0
        yield ParameterRun(name, parameter, stored, *run, writes, writes_scalars=first and begins)


def names_of_copies(chunk: nn.Module) -> list[str]:
    """Return the names of the tied weight if another stage counts and writes it."""
    model = model_of(chunk)
    if isinstance(chunk, FSDP):
        names = list(chunk.tied.layout.names) if chunk.tied else []
    else:
        tied = getattr(model, "tied_weight", None)
        names = [name for name, p in model.named_parameters() if p is tied]
    return names if names and not is_first(model) else []


def model_of(chunk: nn.Module) -> nn.Module:
    """Return the model, without the FSDP around it."""
    return chunk.module if isinstance(chunk, FSDP) else chunk


def _iterate_tensors(
    chunk: nn.Module,
) -> Iterator[tuple[str, nn.Parameter, nn.Parameter, tuple[int, int, int]]]:
    """Yield each parameter, the tensor that stores it, and (start, stop, offset) of the run."""
    if not isinstance(chunk, FSDP):
        for name, parameter in chunk.named_parameters():
            yield name, parameter, master_of(parameter), (0, parameter.numel(), 0)
        return
    for flat in chunk.flats:
        pieces: list[tuple[int, int, int, int]] = [*flat.layout.pieces(flat.axis.rank)]
        # A rank whose shard is only padding still has an optimizer that counts steps.
        for number, start, stop, offset in pieces or [(0, 0, 0, 0)]:
            run = start, stop, offset
            yield flat.layout.names[number], flat.leaves[number], flat.shard_f, run


def list_runs(chunks: Sequence[nn.Module], grid: Grid) -> list[ParameterRun]:
    """Return this rank's runs of parameters, of all its pieces of the model."""
    return [run for chunk in chunks for run in iterate_runs(chunk, grid)]


def slice_parameters(parts: Sequence[ParameterRun]) -> list[TensorSlice]:
    """Return the slices of the parameters."""
    return [
        box for run in parts for box in run.slice_tensor(f"model/{run.name}", run.tensor.detach())
    ]


def slice_optimizer(optimizer: Optimizer, parts: Sequence[ParameterRun]) -> list[TensorSlice]:
    """Return the slices of the optimizer's state, such as `optimizer.exp_avg/layers.3…`.

    State of the parameter's shape is cut like the parameter. A 0-dim state (the step count) is the
    same on all ranks.

    Raises:
        CheckpointError: a state has another shape.
    """
    slices: list[TensorSlice] = []
    for parameter, runs in _iterate_trained(optimizer, parts):
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is None:
                continue
            same_shape = isinstance(value, Tensor) and value.shape == parameter.shape
            if not same_shape and not (isinstance(value, Tensor) and value.dim() == 0):
                raise CheckpointError(
                    f"the optimizer's {key} of {runs[0].name} is neither of the parameter's shape "
                    "nor a tensor without dimensions: how to cut it for another grid is unknown"
                )
            for run in runs:
                path = f"optimizer.{key}/{run.name}"
                if same_shape:
                    slices += run.slice_tensor(path, value.detach())
                else:
                    slices.append(TensorSlice(path, value, (), (), run.writes_scalars))
    return slices


@dataclass(frozen=True)
class RestorePlan:
    """The tensors into which an optimizer's state is loaded.

    Attributes:
        slices: the slices to read.
        state: the same tensors in the form of "state" in `Optimizer.load_state_dict`.
        scalars: 0-dim states of parameters in one flat shard, each with the tensor in `state` that
            they share.
    """

    slices: list[TensorSlice] = field(default_factory=list)
    state: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    scalars: list[tuple[TensorSlice, Tensor]] = field(default_factory=list)

    def check(self) -> None:
        """Refuse 0-dim states that differ between parameters of one flat shard.

        Raises:
            CheckpointError: two differ; names the parameter.
        """
        for scalar, shared in self.scalars:
            if scalar.tensor != shared:
                raise CheckpointError(
                    f"{scalar.name} is {scalar.tensor.item()} in the checkpoint, and "
                    f"{shared.item()} of another parameter in the same flat shard, which an "
                    "optimizer sees as one; load it into a model without FSDP"
                )


def plan_optimizer_restore(
    optimizer: Optimizer, parts: Sequence[ParameterRun], tensors: Mapping[str, StoredTensor]
) -> RestorePlan:
    """Allocate the state that a checkpoint has for this rank's runs.

    Raises:
        CheckpointError: the checkpoint has a state for some parameters of a flat shard only, or of
            an unknown dtype.
    """
    saved: dict[str, list[str]] = {}
    for path in tensors:
        kind, _, name = path.partition("/")
        if kind.startswith("optimizer."):
            saved.setdefault(name, []).append(kind.removeprefix("optimizer."))
    plan = RestorePlan()
    for i, (parameter, runs) in enumerate(_iterate_trained(optimizer, parts)):
        state: dict[str, Tensor] = {}
        for key in dict.fromkeys(key for run in runs for key in saved.get(run.name, [])):
            for run in runs:
                path = f"optimizer.{key}/{run.name}"
                if path not in tensors:
                    raise CheckpointError(f"the checkpoint has no {path}, and {key} of others")
                dtype = _dtype(path, tensors[path])
                if tensors[path].shape:
                    whole = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
                    plan.slices.extend(run.slice_tensor(path, state.setdefault(key, whole)))
                else:
                    scalar = TensorSlice(path, torch.zeros((), dtype=dtype), (), (), False)
                    plan.slices.append(scalar)
                    plan.scalars.append((scalar, state.setdefault(key, scalar.tensor)))
        if state:
            plan.state[i] = state
    return plan


def _dtype(path: str, entry: StoredTensor) -> torch.dtype:
    dtype = getattr(torch, entry.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"{path} has dtype {entry.dtype!r}, which torch does not know")
    return dtype


def group_settings(optimizer: Optimizer) -> list[dict[str, object]]:
    """Return each parameter group's settings as plain values.

    Raises:
        CheckpointError: a setting is no number, flag or list of numbers.
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


def restore_groups(optimizer: Optimizer, saved: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return "param_groups" for `load_state_dict`, with the saved settings.

    Raises:
        CheckpointError: the number of groups differs, or this optimizer lacks a setting.
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


def _iterate_trained(
    optimizer: Optimizer, parts: Sequence[ParameterRun]
) -> Iterator[tuple[nn.Parameter, list[ParameterRun]]]:
    """Yield the optimizer's tensors in its order, each with the runs in it."""
    runs_of: dict[int, list[ParameterRun]] = {}
    for run in parts:
        runs_of.setdefault(id(run.tensor), []).append(run)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in runs_of:
                raise CheckpointError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is none "
                    "of the model's; build it from model.parameters()"
                )
            yield parameter, runs_of[id(parameter)]
