"""A run over two grids, with a checkpoint between them, trains the model that one process trains.

`make benchmark` draws hundreds (test_benchmark_compositions.py); these are
a few of the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from torch import Tensor, nn

from shardlab.comm import World
from shardlab.context.parallel import ContextParallel
from shardlab.experts.config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.experts.router import Router
from shardlab.fsdp import FSDP, ShardingStrategy, fully_sharded
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import IGNORED
from shardlab.layers.matmul import fuse
from shardlab.layers.sharding import Sharding, sharding_of
from shardlab.parity.case import Case
from shardlab.parity.ranks import run_schedule
from shardlab.training import checkpoint
from shardlab.training import step as training_step
from shardlab.training.step import StepGradients
from tests.shardlab.compositions import step as one_step
from tests.shardlab.compositions.two_grids import Leg, Right, Run, alone, draw_run
from tests.shardlab.fsdp_models import gathered

Differences = dict[str, float]


def travel(world: World, run: Run, number: int, folder: str, right: Right) -> Differences:
    """Train on one of the grids, after a load on the second and before a save on the first."""
    leg = run.legs[number]
    grid = Grid(
        world=world, tensor=leg.tensor, context=leg.context, pipeline=leg.pipeline, data=leg.data,
        expert=leg.expert, expert_tensor=leg.expert_tensor,
    )  # fmt: skip
    chunks = build(grid, leg, seed=0 if leg.dropout else number)
    parts: Sequence[Any] = chunks
    if leg.sharded:
        strategy = ShardingStrategy[leg.sharded]
        parts = [
            FSDP(chunk, grid.replicas, units=chunk.layers.values(), strategy=strategy)
            for chunk in chunks
        ]
    gradients = StepGradients(
        parts, grid, microbatches=leg.microbatches, max_norm=run.max_norm, reduction=leg.reduction
    )
    optimizer = run.optimize(p for part in parts for p in part.parameters())
    if number:
        checkpoint.load(folder, model=parts, grid=grid, optimizer=optimizer)
    off = {}
    for now in run.steps(number):
        gradients.zero_grad()
        one_step.prepare(now, grid, chunks)
        microbatches = one_step.split_batch(now, grid.data.rank, chunks[0])
        run_schedule(grid, cast(Case, now), chunks, parts, microbatches)
        counted = sum(int((targets != IGNORED).sum()) for _, targets in microbatches)
        norm = float(gradients.finish(tokens=counted if leg.reduction == "tokens" else None))
        off[f"norm {now.step}"] = abs(norm / right.norms[now.step] - 1)
        optimizer.step()
    if not number:
        checkpoint.save(folder, model=parts, grid=grid, optimizer=optimizer)
    return off | compare(parts, right.parameters[0], right.parameters[number + 1])


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


def build(grid: Grid, leg: Leg, seed: int) -> list[GPT]:
    """This rank's pieces of the model."""
    chunks = [
        leg.prepared(
            GPT(
                leg.config(), tensor=grid.tensor, sequence_parallel=leg.sequence_parallel,
                seed=seed, stage=piece, stages=leg.pieces,
                experts=ExpertAxes.of(grid) if leg.experts else None,
                context=ContextParallel(grid.context, leg.kind),
            )
        )
        for piece in range(grid.pipeline.rank, leg.pieces, leg.pipeline)
    ]  # fmt: skip
    if leg.fused:
        for chunk in chunks:
            fuse(chunk)
    return chunks


def compare(
    parts: Sequence[nn.Module], start: dict[str, Tensor], right: dict[str, Tensor]
) -> Differences:
    """How far each parameter is from where it should be, relative to how far it moved."""
    moved = {name: float((right[name] - start[name]).abs().max()) for name in right}
    least = max(moved.values()) / 1000
    off = {}
    for part in parts:
        for name, (value, sharding) in local_parameters(part).items():
            wanted = sharding.local(right[name]) if sharding else right[name]
            off[name] = float((value - wanted).abs().max()) / max(moved[name], least)
    return off


def local_parameters(part: nn.Module) -> dict[str, tuple[Tensor, Sharding | None]]:
    """This rank's slices over the tensor axis, and how they are cut."""
    if not isinstance(part, FSDP):
        return {name: (p.detach(), sharding_of(p)) for name, p in part.named_parameters()}
    slices: dict[str, tuple[Tensor, Sharding | None]] = {}
    for flat in part.flats:
        cut = dict(zip(flat.layout.names, map(sharding_of, flat.leaves), strict=True))
        slices |= {name: (value, cut[name]) for name, value in gathered(flat, flat.shard_f).items()}
    return slices


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
        if field.name not in ("experts", "step", "packed", "main_grads"):
            assert len({getattr(leg, field.name) for leg in legs}) > 1, field.name
    sharded = [leg for leg in legs if leg.sharded and leg.experts]
    assert {leg.sharded for leg in sharded} == {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"}
    assert {leg.tensor for leg in sharded} == {1, 2, 4}
    assert any(leg.experts.bias_rate for leg in sharded if leg.experts)
    assert any(first.sharded and not second.sharded for first, second in (r.legs for r in runs))
    assert any(second.sharded and not first.sharded for first, second in (r.legs for r in runs))
