"""One step of a composition on its ranks, and the same step in one process: what both leave.

One process plays the data ranks in turn, each with its dropout seed and its micro-batches. Dropout
draws a mask for each tensor rank's part; the one process puts those of all ranks side by side. A
capacity is of each rank's rows, so it drops by parts too. And where a loss looks at the load of all
data ranks it plays them once before, to know it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.experts import routing
from shardlab.experts.layer import ExpertAxes
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.layers.matmul import fuse
from shardlab.layers.sharding import Sharding, sharding_of
from shardlab.parity import ranks
from shardlab.parity.case import Case
from shardlab.parity.ranks import Steps
from tests.shardlab.compositions.composition import Composition
from tests.shardlab.compositions.one_process import Loads, drop_by_parts, join_masks
from tests.shardlab.default_device import on_default_device

HUGE = 1e9  # a limit to the norm that changes nothing
NEARLY_ZERO = 1e-6  # of the model's largest entry: what has no gradient but rounding (key biases)


@dataclass
class Step:
    """The losses' sum or mean, the gradients' norm, and the gradients by name: None if frozen."""

    loss: float = 0.0
    norm: float = 0.0
    gradients: dict[str, Tensor | None] = field(default_factory=dict)


def alone(case: Composition) -> Step:
    """The step in one process."""
    loads = Loads(case.data)
    with patch.object(routing, "drop", partial(drop_by_parts, case, routing.drop)):
        if case.experts and case.experts.global_aux_loss:
            _played(case, loads)
            loads.known = True
        return _played(case, loads)


def _played(case: Composition, loads: Loads) -> Step:
    result, over = Step(), divisor(case)
    for rank in range(case.data):
        model = case.prepared(GPT(case.config(), tensor=Axis.alone(), dropout_seed=rank))
        join_masks(model, case)
        loads.watch(model)
        result.loss += play_rank(case, model, rank) / over
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                before = result.gradients.get(name)
                gradient = parameter.grad / over
                result.gradients[name] = gradient if before is None else before + gradient
            else:
                result.gradients.setdefault(name)
    squares = [g.square().sum() for g in result.gradients.values() if g is not None]
    result.norm = float(torch.stack(squares).sum().sqrt())
    return result


def play_rank(case: Composition, model: GPT, rank: int) -> float:
    """Add a data rank's gradients to those of `model`, and return its loss: times `divisor`."""
    sums, total = case.reduction == "tokens", 0.0
    each = 1.0 if sums else 1 / case.microbatches
    for router in model.routers:
        router.scale = "tokens" if sums else each
    _pack(case, model, rank)
    for number, (tokens, targets) in enumerate(split_batch(case, rank)):
        if sums:
            for router in model.routers:
                router.counted = _counted(case, rank)[number], _counted(case)[number]
        loss = _loss(case, model, Axis.alone())(model(tokens), targets) * each
        loss.backward()
        total += loss.item()
    return total


def divisor(case: Composition) -> int:
    """What the sums over a step's data ranks are divided by."""
    counted = int((case.batch()[1] != IGNORED).sum())
    return {"mean": case.data, "sum": 1, "tokens": counted}[case.reduction]


class Part(NamedTuple):
    """What this rank holds: how each parameter is cut, and whether it sees the loss."""

    shardings: dict[str, Sharding | None]
    last: bool


@on_default_device
def run_on_ranks(world: World, case: Composition) -> tuple[Part, Step]:
    """Take the step on the ranks of `world`; return this rank's part of it."""
    grid = Grid(
        world=world, tensor=case.tensor, context=case.context, pipeline=case.pipeline,
        data=case.data, expert=case.expert, expert_tensor=case.expert_tensor,
    )  # fmt: skip
    chunks = build(grid, case, dropout_seed=grid.data.rank)
    named = [named for chunk in chunks for named in chunk.named_parameters()]
    part = Part({name: sharding_of(parameter) for name, parameter in named}, chunks[-1].last)
    prepare(case, grid, chunks)
    settings: dict[str, Any] = {"max_norm": HUGE}
    if not case.sharded:
        settings = {"start": "verify", "bucket_bytes": 4000}
        settings["main_grads"] = torch.float64 if case.main_grads else None
    steps, result = Steps(chunks, grid, cast(Case, case), **settings), Step()
    loss, result.norm = steps.take(case.batch())
    result.gradients = steps.local("grad")
    result.loss = average(grid, case, loss)
    return part, result


def build(grid: Grid, case: Composition, **seeds: int) -> list[GPT]:
    """Return this rank's pieces of the model."""
    chunks = [
        case.prepared(
            GPT(
                case.config(), tensor=grid.tensor, sequence_parallel=case.sequence_parallel,
                stage=piece, stages=case.pieces, device=grid.device,
                experts=ExpertAxes.of(grid) if case.experts else None,
                context=ContextParallel(grid.context, case.kind), **seeds,
            )
        )
        for piece in range(grid.pipeline.rank, case.pieces, case.pipeline)
    ]  # fmt: skip
    if case.fused:
        for chunk in chunks:
            fuse(chunk, gradient_accumulation=case.main_grads)
    return chunks


def average(grid: Grid, case: Composition, loss: float | None) -> float:
    """Return the loss of all replicas, from this rank's; 0 where the stage has none."""
    if loss is None:
        return 0.0
    over = divisor(case) if case.reduction == "tokens" else grid.replicas.size
    over = grid.context.size if case.reduction == "sum" else over
    return (
        float(
            grid.replicas.all_reduce(torch.tensor([loss], dtype=torch.float64, device=grid.device))
        )
        / over
    )


def prepare(case: Composition, grid: Grid, chunks: list[GPT]) -> None:
    """Give the pieces each micro-batch's documents, and the last one the loss of the reduction."""
    for chunk in chunks:
        _pack(case, chunk, grid.data.rank)
    chunks[-1].loss = _loss(case, chunks[-1], grid.tensor)  # type: ignore[method-assign]


def split_batch(case: Composition, rank: int, model: GPT | None = None) -> list[Any]:
    """Return this data rank's (tokens, targets) of each micro-batch, cut over the context axis."""
    return ranks.split_batch(case.batch(), rank, cast(Case, case), model)


def _counted(case: Composition, rank: int | None = None) -> list[int]:
    """How many targets count in each micro-batch, of one data rank or of all."""
    ranks = range(case.data) if rank is None else [rank]
    each = [[int((y != IGNORED).sum()) for _, y in split_batch(case, r)] for r in ranks]
    return [sum(column) for column in zip(*each, strict=True)]


def _pack(case: Composition, model: GPT, rank: int) -> None:
    """Hand the model each micro-batch's documents; their forwards come in order."""
    if case.packed:
        documents = iter(case.documents().chunk(case.data)[rank].chunk(case.microbatches))
        model.register_forward_pre_hook(lambda _, inputs: (*inputs, next(documents)))


def _loss(case: Composition, model: GPT, tensor: Axis) -> Any:
    if case.reduction != "tokens":
        return model.loss
    return lambda logits, targets: cross_entropy(logits, targets.t(), axis=tensor).sum()


def differences(world: World, case: Composition, right: Step) -> dict[str, float]:
    """How far this rank's part of the step is from that of one process, by name."""
    part, actual = run_on_ranks(world, case)
    off = {"norm": abs(actual.norm / right.norm - 1)}
    if part.last:
        off["loss"] = abs(actual.loss / right.loss - 1)
    largest = max(float(g.abs().max()) for g in right.gradients.values() if g is not None)
    for name, cut in part.shardings.items():
        gradient, whole = actual.gradients.get(name), right.gradients[name]
        if gradient is None or whole is None:
            off[name] = 0.0 if gradient is whole else float("inf")
            continue
        scale = max(float(whole.abs().max()), NEARLY_ZERO * largest)
        off[name] = (
            float((gradient.cpu() - (cut.local(whole) if cut else whole)).abs().max()) / scale
        )
    return off
