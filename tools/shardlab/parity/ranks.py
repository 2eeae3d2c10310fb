"""What runs on the ranks: some steps of a case, and what they leave there.

`train_alone` takes the same steps in one process, on the whole batch; `preflight.py` looks at the
model before. What the ranks leave is compared in `diagnose.py`, by the process that started them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import World
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import copies_of, load_whole, local, sharding_of
from shardlab.parity.case import AXES, Case, refuse
from shardlab.parity.preflight import Reference
from shardlab.parity.subject import Subject, count_targets
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.training.step import StepGradients

RATE = 0.1  # of SGD, whose steps show a gradient of the wrong size
Pair = tuple[Tensor | None, Tensor | None]


class Placement(NamedTuple):
    """How a rank holds a parameter.

    Attributes:
        shape: of this rank's part.
        mark: the dim and its whole length, which a mark says is cut; None without a mark.
        expert: whether it is marked as an expert's.
        fits: whether this part has the shape that its marks cut from the whole.
    """

    shape: tuple[int, ...]
    mark: tuple[int, int] | None
    expert: bool
    fits: bool


@dataclass
class Trace:
    """What a rank's steps left.

    Attributes:
        place: its place on each axis.
        placements: how it holds each of its parameters.
        losses: of each step, the mean over its micro-batches (or their sum, of summed losses); only
            the last stage has any.
        norms: of each step.
        gradients: of the first step: this rank's, and its slice of the one process's; None for a
            frozen parameter.
        weights: the same of the weights after all steps.
        refused: why the model was not built; nothing else is known then.
    """

    place: dict[str, int]
    placements: dict[str, Placement] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: dict[str, Pair] = field(default_factory=dict)
    weights: dict[str, Pair] = field(default_factory=dict)
    refused: str = ""


def train_on_ranks(
    world: World, subject: Subject, case: Case, reference: Reference, steps: int
) -> Trace:
    """Take the steps of a case on this rank, from the weights of one process."""
    grid = Grid(
        world=world, tensor=case.tensor, context=case.context, pipeline=case.pipeline,
        data=case.data, expert=case.expert, expert_tensor=case.expert_tensor or None,
    )  # fmt: skip
    trace = Trace({name: grid.axis(name).rank for name in AXES})
    try:
        chunks = [
            subject.make(grid, case, piece, case.pieces)
            for piece in range(grid.pipeline.rank, case.pieces, case.pipeline)
        ]
    except ValueError as error:
        trace.refused = str(error)
        return trace
    named = {name: p for chunk in chunks for name, p in chunk.named_parameters()}
    trace.placements = {name: _describe(p, reference.start.get(name)) for name, p in named.items()}
    wrong = not all(placement.fits for placement in trace.placements.values())
    if world.whole.all_reduce(torch.tensor([float(wrong)])).item():
        return trace
    for chunk in chunks:
        load_whole(chunk, reference.start)
    settings: dict[str, Any] = {} if case.fsdp else {"start": "trust"}
    taken = Steps(chunks, grid, case, **settings)
    taken.gradients.checks_marks = False  # a partial gradient is what the comparison is to find
    parameters = (p for part in taken.parts for p in part.parameters() if p.requires_grad)
    optimizer = SGD(parameters, lr=RATE)

    def pair(values: str, wholes: dict[str, Any]) -> dict[str, Pair]:
        return {
            name: (x, None if wholes[name] is None else local(named[name], wholes[name]))
            for name, x in taken.local(values).items()
        }

    for number in range(steps):
        loss, norm = taken.take(subject.batch(number))
        trace.norms.append(norm)
        trace.losses += [] if loss is None else [loss]
        if number == 0:
            trace.gradients = pair("grad", reference.gradients)
        optimizer.step()
    trace.weights = pair("data", reference.weights)
    return trace


def _describe(parameter: nn.Parameter, whole: Tensor | None) -> Placement:
    try:
        fits = whole is not None and local(parameter, whole).shape == parameter.shape
    except (ValueError, IndexError):  # the mark names another length, or a dim that doesn't exist
        fits = False
    cut, expert = sharding_of(parameter), copies_of(parameter) is not None
    mark = (cut.dim, cut.size) if cut else None
    return Placement(tuple(parameter.shape), mark, expert, fits)


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
        self.named = {name: p for chunk in chunks for name, p in chunk.named_parameters()}
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
        if self.gradients.replicas:
            attribute = self.gradients.replicas.attribute if values == "grad" else values
            found = {name: getattr(p, attribute, None) for name, p in self.named.items()}
            return {name: None if x is None else x.detach().clone() for name, x in found.items()}
        shards: dict[str, Tensor | None] = dict.fromkeys(self.named)
        for part in self.parts:
            for name, x in part.iterate_whole_parameters(values):  # type: ignore[operator]
                shards[name] = local(self.named[name], x).clone()
        return shards


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
    shape: Any = ()
    if case.pieces > 1:
        if not hasattr(chunks[0], "hidden_shape"):
            refuse("hidden-shape")
        inputs = microbatches[0][0]
        first = inputs[0] if isinstance(inputs, tuple) else inputs
        shape = chunks[0].hidden_shape(len(first), first.shape[1] * case.context)
    return run(
        by_name(case.schedule, case.pipeline, case.microbatches, case.pieces // case.pipeline),
        parts, microbatches, chunks[-1].loss, axis=grid.pipeline, shape=shape,
        dtype=getattr(chunks[0], "hidden_dtype", None) if case.pieces > 1 else None,
        scale=1.0 if case.reduction == "tokens" else None,
    )  # fmt: skip
