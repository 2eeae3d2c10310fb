"""Whatever is composed of what shardlab offers trains the model that one process trains.

`make benchmark` draws hundreds (test_benchmark_compositions.py); these are
a few of the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pages.ranks import alone
from shardlab.comm import Axis
from shardlab.context.parallel import ContextParallel
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.training.step import StepGradients
from tests.shardlab.compositions.composition import Composition, Run, draw_run
from tests.shardlab.compositions.on_ranks import worst

EIGHT = ExpertConfig(count=8, top_k=2)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.ci] * (seed > 1)) for seed in range(12)]
)
def test_a_drawn_run_over_two_grids_trains_the_model_of_one_process(
    pool: Any, tmp_path: Path, seed: int
) -> None:
    run = draw_run(seed)
    assert worst(pool, run, tmp_path) <= run.tolerance, run


def demand_step(pool: Any, folder: Path, case: Composition) -> None:
    run = Run((replace(case, layers=max(2, case.pieces)),), each=1)
    assert worst(pool, run, folder) <= run.tolerance


WRITTEN = [
    Composition(context=2, packed=True, kv_heads=2, kind="all-gather"),
    Composition(context=2, microbatches=2, kind="ulysses", reduction="tokens", main_grads=True),
    Composition(context=2, sharded="FULL_SHARD", packed=True, recompute="not reentrant"),
    Composition(context=4, packed=True, reduction="tokens", kv_heads=1, recompute="reentrant"),
    Composition(context=4, kind="ulysses", packed=True, tied=False),
    Composition(
        context=2, tensor=2, sequence_parallel=True, fused=True, packed=True, reduction="tokens"
    ),
    Composition(
        context=2, pipeline=2, microbatches=4, schedule="interleaved", packed=True,
        kind="all-gather", reduction="tokens",
    ),
    Composition(context=2, data=2, sharded="SHARD_GRAD_OP", kind="all-gather", frozen="front"),
    Composition(context=2, kind="all-gather", reduction="sum", microbatches=2),
    Composition(
        context=2, tensor=2, sequence_parallel=True, bias=False, expert=2, expert_tensor=2,
        experts=ExpertConfig(count=4, ffn=8, capacity=1.0, pad=True), reduction="sum",
    ),
    Composition(
        context=2,
        experts=ExpertConfig(count=1, top_k=1, pre_softmax=True, ffn=8, aux_loss=0.3),
    ),
    Composition(tensor=2, dropout=0.3),
    Composition(pipeline=2, dropout=0.3, microbatches=4, recompute="reentrant"),
    Composition(tensor=2, dropout=0.3, sequence_parallel=True),
    Composition(pipeline=2, frozen="front", microbatches=2, tied=False),
    Composition(pipeline=2, frozen="last stage", microbatches=2, tied=False),
    *(
        Composition(
            data=2, expert=2, experts=ExpertConfig(count=4, ffn=8, dispatch=dispatch), bias=False,
            reduction="tokens", frozen="experts of rank 0",
        )
        for dispatch in ("all-to-all", "all-gather")
    ),
    pytest.param(
        Composition(
            tensor=2, pipeline=2, data=2, microbatches=2, sequence_parallel=True, main_grads=True,
            reduction="tokens", frozen="embedding", fused=True,
        ),
        marks=pytest.mark.ci,
    ),
    pytest.param(  # most experts get nobody, and take one
        Composition(
            context=2, expert=2, experts=ExpertConfig(count=8, ffn=8, capacity=0.01, pad=True)
        ),
        marks=pytest.mark.ci,
    ),
    pytest.param(
        Composition(
            context=2, tensor=2, pipeline=2, sequence_parallel=True, microbatches=2, packed=True,
            kind="ulysses", reduction="tokens",
        ),
        marks=pytest.mark.ci,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", WRITTEN, ids=lambda case: f"{case.ranks}-{case.kind}-{case.frozen}"
)
def test_a_written_composition_takes_the_step_of_one_process(
    pool: Any, tmp_path: Path, case: Composition
) -> None:
    demand_step(pool, tmp_path, case)


def test_a_run_drops_on_another_grid_as_it_would_without_a_break(pool: Any, tmp_path: Path) -> None:
    grids = ({"tensor": 2}, {"data": 2}, {"pipeline": 2})
    run = Run(tuple(Composition(dropout=0.3, **sizes) for sizes in grids))
    assert worst(pool, run, tmp_path) <= run.tolerance


def test_a_recomputed_router_pays_for_the_load_that_its_forward_saw(
    pool: Any, tmp_path: Path
) -> None:
    # A pipeline has forwarded others since; the mean of their loads with it is not what it saw.
    experts = ExpertConfig(count=4, ffn=8, global_aux_loss=0.4)
    case = Composition(pipeline=2, microbatches=4, recompute="not reentrant", experts=experts)
    demand_step(pool, tmp_path, case)


def test_a_grid_that_cuts_sequences_refuses_what_does_not() -> None:
    mean = Composition(context=2)
    words = "the model cuts sequences over 1 ranks and the grid over 2: build it with"
    with alone(0, 2) as world, pytest.raises(ValueError, match=words):
        StepGradients(GPT(mean.config(), tensor=Axis.alone()), Grid(world=world, context=2))
    with alone(0, 2) as world, pytest.raises(ValueError, match="16 tokens, 2 shares of 8"):
        model = GPT(mean.config(), tensor=Axis.alone(), context=ContextParallel(world.whole))
        model(mean.batch()[0])  # whole sequences
    for experts, dropout, words in [
        (None, 0.1, "dropout 0.1 beside"),
        (EIGHT, 0.0, "2 tensor and context ranks share a sequence, .* axes say that 1 do"),
    ]:
        with alone(0, 2) as world, pytest.raises(ValueError, match=words):
            config = replace(mean.config(), experts=experts, dropout=dropout)
            axes = ExpertAxes.of(Grid(world=world, expert=2))  # where these are data ranks
            context = ContextParallel(Grid(world=world, context=2).context)
            GPT(config, tensor=Axis.alone(), experts=axes, context=context)
