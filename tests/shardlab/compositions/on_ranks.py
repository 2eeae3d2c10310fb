"""A run on ranks, with a checkpoint between its grids, compared with the run of one process.

The ranks use what a program would use: StepGradients for replicas and for FSDP, a checkpoint, and
an optimizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from shardlab.comm import World
from shardlab.context.parallel import ContextParallel
from shardlab.experts.layer import ExpertAxes
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.matmul import fuse
from shardlab.layers.sharding import sharding_of
from shardlab.parity.case import Case
from shardlab.parity.ranks import Steps
from shardlab.training import checkpoint
from tests.shardlab.compositions.composition import Composition, Run
from tests.shardlab.compositions.one_process import Right, alone, divisor, loss_of, pack_documents
from tests.shardlab.default_device import on_default_device

Differences = dict[str, float]


@on_default_device
def travel(world: World, run: Run, number: int, folder: str, right: Right) -> Differences:
    """Train on one of the grids, after a load from the last one and before a save for the next."""
    leg = run.legs[number]
    grid = Grid(
        world=world, tensor=leg.tensor, context=leg.context, pipeline=leg.pipeline, data=leg.data,
        expert=leg.expert, expert_tensor=leg.expert_tensor,
    )  # fmt: skip
    chunks = build(grid, leg, seed=0 if leg.dropout else number)
    cuts = {name: sharding_of(p) for chunk in chunks for name, p in chunk.named_parameters()}
    settings: dict[str, Any] = {"max_norm": run.max_norm}
    if not leg.sharded:
        main_grads = torch.float64 if leg.main_grads else None
        settings |= {"start": "verify", "bucket_bytes": 4000, "main_grads": main_grads}
    steps = Steps(chunks, grid, cast(Case, leg), **settings)
    optimizer = run.optimize(p for part in steps.parts for p in part.parameters())
    if number:
        checkpoint.load(folder, model=steps.parts, grid=grid, optimizer=optimizer)
    off = {}
    for now in run.steps(number):
        prepare(now, grid, chunks)
        loss, norm = steps.take(now.batch())
        if loss is not None:
            off[f"loss {now.step}"] = abs(average(grid, now, loss) / right.losses[now.step] - 1)
        off[f"norm {now.step}"] = abs(norm / right.norms[now.step] - 1)
        for parameter in steps.named.values() if leg.main_grads else ():
            parameter.grad = getattr(parameter, "main_grad", None)
        optimizer.step()
    if number + 1 < len(run.legs):
        checkpoint.save(folder, model=steps.parts, grid=grid, optimizer=optimizer)
    start, end = right.parameters[0], right.parameters[number + 1]
    moved = {name: float((end[name] - start[name]).abs().max()) for name in end}
    least = max(moved.values()) / 1000
    for name, value in steps.local("data").items():
        cut = cuts[name]
        wanted = cut.local(end[name]) if cut else end[name]
        assert value is not None
        off[name] = float((value.cpu() - wanted).abs().max()) / max(moved[name], least)
    return off


def worst(pool: Any, run: Run, folder: Path) -> float:
    """The largest difference on any rank, step and parameter of the run."""
    right = alone(run)
    legs = [
        pool(leg.ranks).run(travel, run, number, str(folder), right)
        for number, leg in enumerate(run.legs)
    ]
    return max(float(off) for ranks in legs for rank in ranks for off in rank.values())


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
        pack_documents(case, chunk, grid.data.rank)
    chunks[-1].loss = loss_of(case, chunks[-1], grid.tensor)  # type: ignore[method-assign]
