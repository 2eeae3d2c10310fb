"""Lab 01's ways to train: clipped, warmed up and decayed, recomputed, dropped out, looked at.

Each option promises the losses of one process, written here in plain torch; and that a run which
goes on from a checkpoint goes on as one without a break.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pages.programs import TRAIN, script
from shardlab.comm import World
from shardlab.data.writer import Writer
from tests.shardlab.labs.test_lab_01 import SMALL, losses_of, off_by, plain_losses, runs_of
from tests.shardlab.pool import Pool

Pools = Callable[[int], Pool]
STEPS = 5
WAY: dict[str, Any] = {
    "layers": 4, "microbatches": 2, "steps": STEPS, "clip": 0.5, "warmup": 2, "decay": 4,
}  # fmt: skip
RATES = (1 / 3, 2 / 3, 1.0, 0.55, 0.1)  # of each step: up in two, and down by a cosine in two


def plain(clip: float = WAY["clip"]) -> list[float]:
    """WAY in one process, by torch's own layers and clipping."""
    return plain_losses(WAY["layers"], "gpt", clip, RATES)


def cases_of(ranks: int) -> list[dict[str, Any]]:
    pipelines = [{"pp": 2, "schedule": kind} for kind in ("1f1b", "interleaved", "zb-h1")]
    if ranks == 2:
        return [*pipelines, {"dp": 2, "fsdp": True}, {"tp": 2, "sequence_parallel": True}]
    data_parallel = {"dp": 2, "microbatches": 2}
    return [
        *({"tp": 2, "sequence_parallel": True, **pipeline} for pipeline in pipelines),
        *(pipeline | data_parallel for pipeline in pipelines),
        {"tp": 2, "sequence_parallel": True, "fsdp": True, **data_parallel},
        {"cp": 2, "fsdp": True, **data_parallel},
        {"tp": 2, **data_parallel},
    ]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.ci)])
def test_clipped_warmed_up_and_recomputed_any_grid_has_the_losses_of_plain_torch(
    pool: Pools, ranks: int
) -> None:
    cases = [WAY | case | {"recompute": turn % 2 == 0} for turn, case in enumerate(cases_of(ranks))]
    assert off_by(plain(math.inf), plain()) > 1e-6  # clipping does something
    for results in pool(ranks).run(runs_of, cases):
        for case, losses in zip(cases, results, strict=True):
            assert not losses or off_by(losses, plain()) <= 1e-12, case


# ---------------------------------------------------------------------- dropout, and without

DROPPED = WAY | {"dropout": 0.3}


def train_with_looks(
    world: World, settings: dict[str, Any], often: int = 1
) -> tuple[list[float], list[float]] | None:
    """Losses of a run, and of looks at held-out text, every so many steps."""
    lab = script(TRAIN)
    trainer = lab.Trainer(lab.Settings(**SMALL | settings), world)
    losses, looks = [], []
    for step in range(3):
        losses.append(trainer.step(step))
        if step % often == 0:
            looks.append(trainer.evaluate())
    numbers = [[float(x) for x in xs if x is not None] for xs in (losses, looks)]
    return (numbers[0], numbers[1]) if trainer.last.last else None


def test_a_pipeline_drops_as_one_process_does_and_a_look_drops_nothing(pool: Pools) -> None:
    [(losses, looks)] = pool(1).run(train_with_looks, DROPPED)
    assert pool(1).run(train_with_looks, DROPPED, 9)[0][0] == losses, "looking changes nothing"
    assert off_by(pool(1).run(train_with_looks, WAY)[0][0], losses) > 1e-4, "dropping does"
    for schedule in ("interleaved", "zb-h1"):
        case = DROPPED | {"pp": 2, "schedule": schedule, "recompute": True}
        _, results = pool(2).run(train_with_looks, case)
        assert off_by(results[0], losses) <= 1e-12
        assert off_by(results[1], looks) <= 1e-12


def read_text(world: World, settings: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The sequences that the steps of a run read, and those that its looks do."""
    lab = script(TRAIN)
    text = lab.Trainer(lab.Settings(**SMALL | settings), world).text
    shares = [text.share(step) for step in range(11)], [text.held_out(n) for n in range(4)]
    trained, looked_at = (
        [row.tolist() for words, _ in batches for row in words] for batches in shares
    )
    return trained, looked_at


@pytest.mark.ci
def test_every_grid_looks_at_the_same_text_and_trains_on_none_of_it(
    pool: Pools, tmp_path: Path
) -> None:
    with Writer(tmp_path / "corpus", np.uint16) as writer:
        for document in np.arange(800).reshape(40, 20):
            writer.add(document)
    corpus = {"data": str(tmp_path / "corpus"), "evaluate": 1, "vocabulary": 800}
    for case in (WAY, WAY | corpus):
        [(_, alone)] = pool(1).run(train_with_looks, case)
        for grid in ({"dp": 2, "microbatches": 2, "fsdp": True}, {"tp": 2}, {"pp": 2}):
            assert off_by(pool(2).run(train_with_looks, case | grid)[-1][1], alone) <= 1e-12
    [(trained, looked_at)] = pool(1).run(read_text, case)
    assert len(trained) == 88 and len(looked_at) == 32
    assert not [row for row in looked_at if row in trained]


# ---------------------------------------------------------------------- not finite


def given_up(world: World, settings: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the weights changed in a step in which one rank has a NaN, and in the next one."""
    lab = script(TRAIN)
    trainer = lab.Trainer(lab.Settings(**SMALL | settings), world)

    def changes(step: int) -> bool:
        before = [parameter.detach().clone() for parameter in trainer.part.parameters]
        trainer.step(step)
        pairs = zip(before, trainer.part.parameters, strict=True)
        return not all(torch.equal(old, new) for old, new in pairs)

    def spoil(_: Any, __: Any, output: torch.Tensor) -> None:
        output.register_hook(lambda gradient: gradient * math.nan)

    block = next(iter(trainer.model.layers.values()))
    spoiled = block.register_forward_hook(spoil) if world.rank == 1 else None
    first = changes(0)
    if spoiled:
        spoiled.remove()
    return first, changes(1)


@pytest.mark.parametrize("case", [{"dp": 2}, {"dp": 2, "fsdp": True}, {"pp": 2}])
def test_no_rank_takes_a_step_with_gradients_that_are_not_finite(
    pool: Pools, case: dict[str, Any]
) -> None:
    assert pool(2).run(given_up, WAY | {"microbatches": 2} | case) == [(False, True)] * 2


# ---------------------------------------------------------------------- going on

HALF = {"steps": 2, "dtype": "bfloat16", "dropout": 0.1, "clip": 0.5, "warmup": 1, "decay": 4}


def resumed(world: World, folder: str, case: dict[str, Any]) -> tuple[list[float], list[float]]:
    whole = losses_of(world, **HALF | case | {"steps": 4})
    first = losses_of(world, **HALF | case, save=folder)
    return whole, first + losses_of(world, **HALF | case, load=folder)


@pytest.mark.parametrize("case", [{"pp": 2, "microbatches": 2}, {"dp": 2, "fsdp": True}])
def test_a_run_on_masters_goes_on_as_one_without_a_break(
    pool: Pools, tmp_path: Path, case: dict[str, Any]
) -> None:
    results = pool(2).run(resumed, str(tmp_path / "checkpoint"), case)
    assert len(results[-1][0]) == 4
    assert all(whole == halves for whole, halves in results)


def test_a_run_goes_on_at_its_rate_on_another_grid(pool: Pools, tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    both = {"pp": 2, "schedule": "interleaved"}
    *_, first = pool(2).run(losses_of_run, WAY | both | {"steps": 3, "save": folder})
    [second] = pool(1).run(losses_of_run, WAY | {"steps": 2, "load": folder})
    assert off_by(first + second, plain()) <= 1e-12


def losses_of_run(world: World, settings: dict[str, Any]) -> list[float]:
    return losses_of(world, **settings)


def test_bf16_on_masters_is_near_fp32_as_copies_and_as_shards(pool: Pools) -> None:
    case = WAY | {"dp": 2, "microbatches": 2}
    ways: list[dict[str, Any]] = [{}, {"fused": True}, {"fsdp": True}]
    cases = [case | {"dtype": "bfloat16"} | way for way in ways]
    exact, *approximate = pool(2).run(runs_of, [case, *cases])[0]
    assert exact[0] - exact[-1] > 0.05, "it learns, by more than twice the tolerance"
    assert [loss for loss in approximate if off_by(loss, exact) > 5e-3] == []
