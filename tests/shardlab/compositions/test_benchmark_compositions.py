"""Hundreds of compositions beside one process: `pytest -m benchmark -s` with this file.

`--quick` draws a few and publishes nothing. What was seen goes to the museum's pages.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pages import catalog, museum
from tests.shardlab.compositions.composition import Run, draw_run
from tests.shardlab.compositions.on_ranks import worst

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

DRAWN = 250  # runs, of two compositions each


def judge(pool: Any, folder: Path, runs: list[Run]) -> dict[str, Any]:
    """Train all runs; return what the museum's page says of them."""
    off = {run: worst(pool, run, folder / str(number)) for number, run in enumerate(runs)}
    wrong = [run for run in runs if not off[run] <= run.tolerance]
    assert not wrong, "\n".join(map(str, wrong))
    exact = [off[run] for run in runs if run.tolerance < 1e-9]
    seen = {
        "drawn": len(runs), "different": len(off),
        "ranks": dict(sorted(Counter(run.legs[0].ranks for run in runs).items())),
        "exact": len(exact), "worst": max(exact), "worst in fp32": max(off.values()),
        "wrong": len(wrong),
    }  # fmt: skip
    print(f"\n{json.dumps(seen)}")
    return seen


def test_drawn_compositions_take_the_step_of_one_process(
    pool: Any, tmp_path: Path, quick: bool
) -> None:
    drawn = [draw_run(seed) for seed in range(10 if quick else DRAWN)]
    seen = judge(pool, tmp_path, [Run((leg,), each=1) for run in drawn for leg in run.legs])
    if not quick:
        museum.DRAWN.write_text(json.dumps(seen, indent=1) + "\n", "utf-8")
        catalog.write("museum")


def test_drawn_runs_over_two_grids_train_the_model_of_one_process(
    pool: Any, tmp_path: Path, quick: bool
) -> None:
    judge(pool, tmp_path, [draw_run(seed) for seed in range(20 if quick else DRAWN)])
