"""A run over two grids, with a checkpoint between them, trains the model that one process trains.

`make benchmark` draws hundreds (test_benchmark_compositions.py); these are
a few of the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from shardlab.comm import World
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import sharding_of
from shardlab.parity.case import Case
from shardlab.parity.ranks import Steps
from shardlab.training import checkpoint
from tests.shardlab.compositions import step as one_step
from tests.shardlab.compositions.two_grids import Right, Run, alone, draw_run
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
    chunks = one_step.build(grid, leg, seed=0 if leg.dropout else number)
    cuts = {name: sharding_of(p) for chunk in chunks for name, p in chunk.named_parameters()}
    steps = Steps(chunks, grid, cast(Case, leg), max_norm=run.max_norm)
    optimizer = run.optimize(p for part in steps.parts for p in part.parameters())
    if number:
        checkpoint.load(folder, model=steps.parts, grid=grid, optimizer=optimizer)
    off = {}
    for now in run.steps(number):
        one_step.prepare(now, grid, chunks)
        loss, norm = steps.take(now.batch())
        if loss is not None:
            off[f"loss {now.step}"] = abs(
                one_step.average(grid, now, loss) / right.losses[now.step] - 1
            )
        off[f"norm {now.step}"] = abs(norm / right.norms[now.step] - 1)
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


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.ci] * (seed > 1)) for seed in range(12)]
)
def test_a_drawn_run_over_two_grids_trains_the_model_of_one_process(
    pool: Any, tmp_path: Path, seed: int
) -> None:
    run = draw_run(seed)
    assert worst(pool, run, tmp_path) <= run.tolerance, run
