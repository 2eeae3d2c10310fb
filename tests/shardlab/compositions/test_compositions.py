"""Whatever is composed of what shardlab offers takes the step that one process takes.

`make benchmark` draws hundreds (tests/shardlab/benchmark/test_benchmark_compositions.py); these are
a few of the same.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from shardlab.comm import World
from shardlab.layers import partial_gradients
from tests.shardlab.compositions.drawn import FROZEN, Composition, draw, on
from tests.shardlab.compositions.step import Step, alone, differences

SEEDS = range(9)


def worst(pool: Any, case: Composition) -> float:
    right = alone(case)
    return max(max(off.values()) for off in pool(case.ranks).run(differences, case, right))


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if on(seed) <= 4])
def test_a_drawn_composition_takes_the_step_of_one_process(pool: Any, seed: int) -> None:
    case = draw(seed, on(seed))
    assert worst(pool, case) <= case.tolerance, case


def without_the_last_sum(world: World, case: Composition, right: Step) -> dict[str, float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_gradients, "reduce", lambda *_, **__: None)
        return differences(world, case, right)


def test_a_step_that_forgets_a_reduction_is_seen(pool: Any) -> None:
    case = Composition(tensor=2, sequence_parallel=True)
    off = pool(2).run(without_the_last_sum, case, alone(case))[0]
    assert off["final_norm.weight"] > 0.1
    assert off["head.weight" if "head.weight" in off else "word_embedding.weight"] < case.tolerance


def test_the_draws_reach_every_choice() -> None:
    cases = [draw(seed, on(seed)) for seed in range(500)]
    for field in fields(Composition):
        if field.name != "experts":
            assert len({getattr(case, field.name) for case in cases}) > 1, field.name
    assert {case.frozen for case in cases} == {*FROZEN}
    assert any(case.experts and case.expert == 1 != case.tensor for case in cases)
