"""What runs on the ranks: some steps of a case, and what they leave there.

`train_alone` takes the same steps in one process, on the whole batch; `preflight.py` looks at the
model before. What the ranks leave is compared in `diagnose.py`, by the process that started them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import World
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import copies_of, load_whole, sharding_of
from shardlab.parity.case import Case
from shardlab.parity.preflight import Reference
from shardlab.parity.subject import ParityError, Subject, count_targets
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.training.step import StepGradients

RATE = 0.1  # of SGD, whose steps show a gradient of the wrong size


@dataclass(frozen=True)
class Cut:
    """How a rank's slice lies in the whole parameter; without an axis, it is whole.

    Attributes:
        shape: of the local parameter.
        dim: the dim that is cut; None for a whole parameter.
        rank, size, padded: the place on the tensor axis; the dim's length without and with padding.
        expert: whether it is marked as an expert's.
    """

    shape: tuple[int, ...]
    dim: int | None = None
    rank: int = 0
    size: int = 0
    padded: int = 0
    expert: bool = False

    @classmethod
    def of(cls, parameter: nn.Parameter) -> Cut:
        """Return a parameter's."""
        cut, shape = sharding_of(parameter), tuple(parameter.shape)
        expert = copies_of(parameter) is not None
        if cut is None:
            return cls(shape, expert=expert)
        return cls(shape, cut.dim, cut.axis.rank, cut.size, cut.padded, expert)

    def local(self, whole: Tensor) -> Tensor:
        """Return the slice of a whole tensor, with zeros where there is padding."""
        if self.dim is None:
            return whole
        if self.padded != self.size:
            shape = list(whole.shape)
            shape[self.dim] = self.padded - self.size
            whole = torch.cat([whole, whole.new_zeros(shape)], self.dim)
        length, end = self.shape[self.dim], whole.shape[self.dim]
        begin = min(self.rank * length, end)  # a wrong mark reaches beyond the end
        return whole.narrow(self.dim, begin, min(length, end - begin))


@dataclass
class Trace:
    """What a rank's steps left.

    Attributes:
        place: its place on each axis.
        cuts: its parameters.
        losses: of each step, the mean over its micro-batches (or their sum, of summed losses); only
            the last stage has any.
        norms: of each step.
        gradients: of the first step; None for a frozen parameter.
        weights: after all steps.
        refused: why the model was not built; nothing else is known then.
    """

    place: dict[str, int]
    cuts: dict[str, Cut] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    refused: str = ""


def train_on_ranks(
    world: World, subject: Subject, case: Case, reference: Reference, steps: int
) -> Trace:
    """Take the steps of a case on this rank, from the weights of one process."""
    grid = Grid(
        world=world, tensor=case.tensor, context=case.context, pipeline=case.pipeline,
        data=case.data, expert=case.expert, expert_tensor=case.expert_tensor or None,
    )  # fmt: skip
    place = {name: grid.axis(name).rank for name in ("tensor", "context", "pipeline", "data")}
    try:
        chunks = [
            subject.make(grid, case, piece, case.pieces)
            for piece in range(grid.pipeline.rank, case.pieces, case.pipeline)
        ]
    except ValueError as error:
        return Trace(place, refused=str(error))
    trace = Trace(place, {n: Cut.of(p) for chunk in chunks for n, p in chunk.named_parameters()})
    wrong = any(name not in reference.start or cut.local(reference.start[name]).shape != cut.shape
                for name, cut in trace.cuts.items())  # fmt: skip
    if world.whole.all_reduce(torch.tensor([float(wrong)])).item():
        return trace
    for chunk in chunks:
        load_whole(chunk, reference.start)
    settings: dict[str, Any] = {} if case.fsdp else {"start": "trust"}
    taken = Steps(chunks, grid, case, **settings)
    taken.gradients.checks_marks = False  # a partial gradient is what the comparison is to find
    parameters = (p for part in taken.parts for p in part.parameters() if p.requires_grad)
    optimizer = SGD(parameters, lr=RATE)
    for number in range(steps):
        loss, norm = taken.take(subject.batch(number))
        trace.norms.append(norm)
        trace.losses += [] if loss is None else [loss]
        if number == 0:
            trace.gradients = taken.local("grad")
        optimizer.step()
    trace.weights = {name: x for name, x in taken.local("data").items() if x is not None}
    return trace


class Steps:
    """A rank's pieces of a model, replicated or in FSDP, which take the steps of a case.

    Args:
        chunks: the pieces, whose last one has `loss`.
        grid: the process grid.
        case: the composition.
        settings: further arguments of `StepGradients`.
    """

    def __init__(self, chunks: Sequence[Any], grid: Grid, case: Case, **settings: Any) -> None:
        """Wrap the pieces."""
        self.chunks, self.grid, self.case = chunks, grid, case
        self.parts = [_shard(chunk, grid, case) for chunk in chunks]
        kind: dict[str, Any] = {"microbatches": case.microbatches, "reduction": case.reduction}
        self.gradients = StepGradients(self.parts, grid, **kind, **settings)

    def take(self, batch: Any) -> tuple[float | None, float]:
        """Compute a step's gradients; return the loss, on the last stage, and the norm.

        The loss is the mean over the micro-batches, or their sum if losses are sums.
        """
        self.gradients.zero_grad()
        microbatches = split_batch(batch, self.grid.data.rank, self.case, self.chunks[0])
        if self.case.reduction == "tokens":
            self.gradients.begin(tokens=[count_targets(targets) for _, targets in microbatches])
        losses = run_schedule(self.grid, self.case, self.chunks, self.parts, microbatches)
        norm = float(self.gradients.finish())
        if not losses:
            return None, norm
        over = 1 if self.case.reduction == "tokens" else self.case.microbatches
        return float(torch.stack(losses).sum()) / over, norm

    def local(self, values: str) -> dict[str, Tensor | None]:
        """Return each parameter's gradient ("grad"), or value ("data"), as this tensor rank has it.

        A frozen parameter's gradient is None.
        """
        local: dict[str, Tensor | None] = {}
        for chunk, part in zip(self.chunks, self.parts, strict=True):
            if isinstance(part, FSDP):
                cuts = {
                    n: Cut.of(p)
                    for f in part.flats
                    for n, p in zip(f.layout.names, f.leaves, strict=True)
                }
                local |= dict.fromkeys(cuts)
                whole = part.iterate_whole_parameters(values)
                local |= {name: cuts[name].local(x).clone() for name, x in whole}
                continue
            attribute = values
            if values == "grad" and self.gradients.replicas:
                attribute = self.gradients.replicas.attribute
            named = ((name, getattr(p, attribute, None)) for name, p in chunk.named_parameters())
            local |= {name: None if x is None else x.detach().clone() for name, x in named}
        return local


def _shard(chunk: Any, grid: Grid, case: Case) -> nn.Module:
    if not case.fsdp:
        return chunk  # type: ignore[no-any-return]
    layers = getattr(chunk, "layers", ())
    units = layers.values() if isinstance(layers, nn.ModuleDict) else layers
    return FSDP(chunk, grid.replicas, units=units, strategy=ShardingStrategy[case.fsdp])


def split_batch(batch: Any, rank: int, case: Case, model: Any = None) -> list[tuple[Any, Tensor]]:
    """Return a data rank's (inputs, targets) of each micro-batch, cut over the context axis."""
    inputs, targets = batch
    first, *others = inputs if isinstance(inputs, tuple) else (inputs,)
    shard = model.context.shard if getattr(model, "context", None) else lambda x: x

    def cut(x: Tensor) -> list[Tensor]:
        return [*x.chunk(case.data)[rank].chunk(case.microbatches)]

    columns = [cut(shard(first)), *map(cut, others)]
    rows = [*zip(*columns, strict=True)] if others else columns[0]
    return [*zip(rows, cut(shard(targets)), strict=True)]


def run_schedule(
    grid: Grid, case: Case, chunks: Sequence[Any], parts: Sequence[Any], microbatches: list[Any]
) -> list[Tensor]:
    """Run a case's schedule once; return the micro-batches' losses, on the last stage."""
    first = microbatches[0][0][0] if isinstance(microbatches[0][0], tuple) else microbatches[0][0]
    shape: Any = ()
    dtype = None
    if case.pieces > 1:
        if not hasattr(chunks[0], "hidden_shape"):
            raise ParityError(
                "a pipeline sends what a stage returns: write model.hidden_shape(batch, sequence), "
                "which returns its shape on this rank"
            )
        shape = chunks[0].hidden_shape(len(first), first.shape[1] * case.context)
        dtype = getattr(chunks[0], "hidden_dtype", None)
    return run(
        by_name(case.schedule, case.pipeline, case.microbatches, case.pieces // case.pipeline),
        parts, microbatches, chunks[-1].loss, axis=grid.pipeline, shape=shape,
        dtype=dtype,
        scale=1.0 if case.reduction == "tokens" else None,
    )  # fmt: skip
