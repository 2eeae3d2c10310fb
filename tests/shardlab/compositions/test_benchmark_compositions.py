"""Hundreds of compositions, each beside one process: `pytest -m benchmark -s` with this file.

`--quick` draws a few and publishes nothing. What was seen goes to the museum's pages.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pages import catalog, museum
from tests.shardlab.compositions.composition import Composition, draw, on
from tests.shardlab.compositions.step import alone, differences
from tests.shardlab.compositions.test_two_grids import worst
from tests.shardlab.compositions.two_grids import draw_run

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

DRAWN = 500


def test_five_hundred_compositions_take_the_step_of_one_process(pool: Any, quick: bool) -> None:
    seeds = range(20 if quick else DRAWN)
    drawn = {seed: draw(seed, on(seed)) for seed in seeds}
    off = {seed: _worst(pool, case) for seed, case in drawn.items()}
    wrong = {seed: off[seed] for seed, case in drawn.items() if not off[seed] <= case.tolerance}
    exact = [off[seed] for seed, case in drawn.items() if case.tolerance < 1e-10]
    seen = {
        "drawn": len(drawn),
        "different": len(set(drawn.values())),
        "ranks": dict(sorted(Counter(case.ranks for case in drawn.values()).items())),
        "exact": len(exact),
        "worst": max(exact),
        "worst in fp32": max(off.values()),
        "wrong": len(wrong),
    }
    print(f"\n{json.dumps(seen)}")
    if not quick:
        museum.DRAWN.write_text(json.dumps(seen, indent=1) + "\n", "utf-8")
        catalog.write("museum")
    assert not wrong, "\n".join(f"{seed}: {drawn[seed]}" for seed in wrong)


def test_five_hundred_runs_over_two_grids_train_the_model_of_one_process(
    pool: Any, tmp_path: Path, quick: bool
) -> None:
    runs = {seed: draw_run(seed) for seed in range(20 if quick else DRAWN)}
    off = {seed: worst(pool, run, tmp_path / str(seed)) for seed, run in runs.items()}
    wrong = {seed: off[seed] for seed, run in runs.items() if not off[seed] <= run.tolerance}
    exact = [off[seed] for seed, run in runs.items() if run.tolerance < 1e-9]
    seen = {
        "drawn": len(runs), "different": len(set(runs.values())), "exact": len(exact),
        "worst": max(exact), "worst in fp32": max(off.values()), "wrong": len(wrong),
    }  # fmt: skip
    print(f"\n{json.dumps(seen)}")
    assert not wrong, "\n".join(f"{seed}: {runs[seed]}" for seed in wrong)


def _worst(pool: Any, case: Composition) -> float:
    right = alone(case)
    ranks = pool(case.ranks).run(differences, case, right)
    return max(max(rank.values()) for rank in ranks)
