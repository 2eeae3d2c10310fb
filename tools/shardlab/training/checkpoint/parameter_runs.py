"""In which tensor this rank stores each parameter: a tensor of its own, or a run of a flat shard.

Without FSDP a rank stores a parameter, or its slice over the tensor axis, in a tensor of its own:
the parameter itself or its master. Under FSDP it stores flat shards, each with runs of many
parameters. In both cases the optimizer updates the stored tensor, and the optimizer's state has
that tensor's shape. So the position of a parameter is also the position of its moments. A
checkpoint doesn't depend on it: a run is cut into boxes of the whole parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from torch import Tensor, nn

from shardlab.fsdp import FSDP
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import copies_of, is_first, sharding_of
from shardlab.training.masters import master_of

if TYPE_CHECKING:
    from shardlab.fsdp.flat.parameter import FlatParameter


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
        # A rank whose shard is only padding still has an optimizer that counts steps.
        for number, run in _list_pieces(flat) or [(0, (0, 0, 0))]:
            name, leaf = flat.layout.names[number], flat.leaves[number]
            yield name, leaf, flat.shard_f, run


def _list_pieces(flat: FlatParameter) -> list[tuple[int, tuple[int, int, int]]]:
    pieces = flat.layout.pieces(flat.axis.rank)
    return [(number, (start, stop, offset)) for number, start, stop, offset in pieces]
