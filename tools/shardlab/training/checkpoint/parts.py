"""Where this rank keeps each parameter: in a tensor of its own, or as a run of a flat shard.

A rank of a grid keeps a parameter, or its slice over the tensor axis, as it is, or as its master
where it has one. Under FSDP it keeps flat shards, with runs of many parameters in each. Either way
an optimizer knows the tensor that is kept, and what it remembers has that tensor's shape: what says
where a parameter lies says where its moments do. A checkpoint knows neither: a run is cut into
boxes of the whole parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import copies_of, sharding_of
from shardlab.training.masters import master_of

if TYPE_CHECKING:  # a run without FSDP doesn't load it
    from shardlab.fsdp import FSDP
    from shardlab.fsdp.flat.parameter import FlatParameter


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


@dataclass(frozen=True, eq=False)
class Part:
    """A run of a parameter's elements in a tensor that this rank keeps.

    Attributes:
        name: of the parameter, in the whole model.
        parameter: this rank's slice over the tensor axis; its mark says of what.
        kept: the tensor, which an optimizer knows.
        start, stop: where the run lies in it, flattened.
        offset: where the run begins in the parameter, flattened.
        writes: whether this rank saves it, of those that keep the same.
        counts: whether this rank saves what the whole parameter has once, such as its step count.
    """

    name: str
    parameter: nn.Parameter
    kept: nn.Parameter
    start: int
    stop: int
    offset: int
    writes: bool
    counts: bool

    def boxes(self, path: str, alike: Tensor) -> Iterator[Held]:
        """Yield the boxes of the run in `alike`, a tensor of the shape of `kept`; no padding."""
        run = alike.view(-1)[self.start : self.stop]
        sharding = sharding_of(self.parameter)
        whole = list(self.parameter.shape)
        begin = 0
        if sharding is not None:
            begin = sharding.axis.rank * whole[sharding.dim]
            whole[sharding.dim] = sharding.size
        for place, shape in boxes_of_run(self.parameter.shape, self.offset, len(run)):
            length = prod(shape)
            box, run = run[:length].view(shape), run[length:]
            offset = list(place)
            if sharding is not None:
                dim = sharding.dim
                offset[dim] += begin
                inside = min(shape[dim], sharding.size - offset[dim])
                if inside <= 0:
                    continue
                box = box.narrow(dim, 0, inside)
            yield Held(path, box, tuple(whole), tuple(offset), self.writes)


def boxes_of_run(
    shape: Sequence[int], offset: int, length: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (offset, shape) of boxes that make up a run of a tensor's elements, in their order.

    They are the end of a first row, whole rows, and the beginning of a last one, the first and the
    last cut in the same way again.
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
        for place, size in boxes_of_run(shape[1:], inside, head):
            yield (first, *place), (1, *size)
        yield from boxes_of_run(shape, offset + head, length - head)
        return
    rows = length // row
    yield (first, *(0,) * (len(shape) - 1)), (rows, *shape[1:])
    yield from boxes_of_run(shape, offset + rows * row, length - rows * row)


def parts_of(chunk: GPT | FSDP, grid: Grid) -> Iterator[Part]:
    """Yield what this rank keeps of one of its pieces of the model."""
    gpt = gpt_of(chunk)
    for name, parameter, kept, run in _runs(chunk):
        elsewhere = name == "word_embedding.weight" and not gpt.first  # the first stage's, tied
        of_expert = copies_of(parameter)
        # FSDP cuts an expert over the ranks that held its copies; its replicas are those of a run.
        copies = (of_expert or grid.replicas) if isinstance(chunk, GPT) else chunk.replicate_axis
        tensor = grid.expert_tensor if of_expert else grid.tensor
        mine = copies.rank == 0 and not elsewhere
        first = mine and tensor.rank == 0
        writes = mine if sharding_of(parameter) is not None else first
        start, stop, offset = run
        begins = start < stop and offset == 0
        yield Part(name, parameter, kept, *run, writes, counts=first and begins)


def gpt_of(chunk: GPT | FSDP) -> GPT:
    """Return the model, without the FSDP around it."""
    return chunk if isinstance(chunk, GPT) else cast("GPT", chunk.module)


def _runs(
    chunk: GPT | FSDP,
) -> Iterator[tuple[str, nn.Parameter, nn.Parameter, tuple[int, int, int]]]:
    """Yield each parameter, the tensor that keeps it, and (start, stop, offset) of the run."""
    if isinstance(chunk, GPT):
        for name, parameter in chunk.named_parameters():
            yield name, parameter, master_of(parameter), (0, parameter.numel(), 0)
        return
    for flat in chunk.flats:
        # A rank whose shard is padding alone still has an optimizer that counts its steps.
        for number, run in _pieces(flat) or [(0, (0, 0, 0))]:
            name, leaf = flat.layout.names[number], flat.leaves[number]
            yield name, leaf, flat.shard_f, run


def _pieces(flat: FlatParameter) -> list[tuple[int, tuple[int, int, int]]]:
    found = flat.layout.pieces(flat.axis.rank)
    return [(number, (start, stop, offset)) for number, start, stop, offset in found]
