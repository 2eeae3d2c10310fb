"""A run over two grids, with a checkpoint between them, trains the model that one process trains.

`make benchmark` draws hundreds (test_benchmark_compositions.py); these are
a few of the same.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

from shardlab.comm import World
from shardlab.experts.config import ExpertConfig
from shardlab.experts.router import Router
from shardlab.fsdp import fully_sharded
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import sharding_of
from shardlab.parity.case import Case
from shardlab.parity.ranks import Steps
from shardlab.training import checkpoint
from shardlab.training import step as training_step
from tests.shardlab.compositions import step as one_step
from tests.shardlab.compositions.two_grids import Leg, Right, Run, alone, draw_run
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


def let_routers_keep_their_scale(patch: pytest.MonkeyPatch) -> None:
    scale = property(lambda _: 1.0, lambda *_: None)
    patch.setattr(Router, "scale", scale, raising=False)


def let_routers_keep_their_bias(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Router, "end_step", Router.forget)


def let_optimizers_forget(patch: pytest.MonkeyPatch) -> None:
    load = checkpoint.load

    def load_model(path: str, *, model: Any, grid: Grid, **_: Any) -> None:
        load(path, model=model, grid=grid)

    patch.setattr(checkpoint, "load", load_model)


def let_ranks_drop_alike(patch: pytest.MonkeyPatch) -> None:
    for module in (fully_sharded, training_step):
        patch.setattr(module, "number_replicas", lambda *_: None)


def travel_with_a_fault(
    world: World, run: Run, number: int, folder: str, right: Right, fault: Any
) -> Differences:
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        return travel(world, run, number, folder, right)


def worst(pool: Any, run: Run, folder: Path, *fault: Any) -> float:
    """The largest difference on any rank, step and parameter of the run."""
    right, body = alone(run), travel_with_a_fault if fault else travel
    legs = [
        pool(leg.ranks).run(body, run, number, str(folder), right, *fault)
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


ROUTED = ExpertConfig(count=4, ffn=8, scores="sigmoid", bias_rate=0.01, aux_loss=0.3)
SHARDED = Leg(data=2, microbatches=2, sharded="FULL_SHARD", bias=False)


@pytest.mark.parametrize(
    ("fault", "leg"),
    [
        pytest.param(
            let_routers_keep_their_scale, replace(SHARDED, experts=ROUTED), marks=pytest.mark.ci
        ),
        (let_routers_keep_their_bias, replace(SHARDED, experts=ROUTED)),
        (let_optimizers_forget, SHARDED),
        pytest.param(let_ranks_drop_alike, replace(SHARDED, dropout=0.3), marks=pytest.mark.ci),
    ],
)
@pytest.mark.parametrize("strategy", ["FULL_SHARD", pytest.param(None, marks=pytest.mark.ci)])
def test_a_run_with_a_fault_is_seen(
    pool: Any, tmp_path: Path, fault: Any, leg: Leg, strategy: str | None
) -> None:
    leg = replace(leg, sharded=strategy)
    run = Run((leg, replace(leg, microbatches=4)))
    assert worst(pool, run, tmp_path) <= run.tolerance
    assert worst(pool, run, tmp_path, fault) > 1e-3


def test_the_drawn_runs_reach_every_choice() -> None:
    runs = [draw_run(seed) for seed in range(500)]
    legs = [leg for run in runs for leg in run.legs]
    for field in fields(Leg):
        if field.name not in ("experts", "step", "packed", "main_grads", "heads"):
            assert len({getattr(leg, field.name) for leg in legs}) > 1, field.name
    sharded = [leg for leg in legs if leg.sharded and leg.experts]
    assert {leg.sharded for leg in sharded} == {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"}
    assert {leg.tensor for leg in sharded} == {1, 2, 4}
    assert any(leg.experts.bias_rate for leg in sharded if leg.experts)
    assert any(first.sharded and not second.sharded for first, second in (r.legs for r in runs))
    assert any(second.sharded and not first.sharded for first, second in (r.legs for r in runs))
