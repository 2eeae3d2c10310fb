"""Lab 06: the solution is right, and each usual mistake is told its cause."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pages.blocks import LANGUAGES
from pages.programs import script
from pages.ranks import run_reports
from pages.runs.lab_06 import FILES, grade_code, read_solution
from shardlab.comm import World
from shardlab.context.zigzag import visible_slices

MUTANTS = tomllib.loads((Path(__file__).parent / "mutants/lab_06.toml").read_text("utf-8"))
COUNT = "axis.all_reduce(counts_BS.sum())"
COMMON = ["mean of means", "no factor", "weighed, unguarded"]


def replace(right: str, wrong: str) -> str:
    """Return the solution with a mistake."""
    code = read_solution()
    assert right in code, right
    return code.replace(right, wrong)


def test_the_solution_is_right_and_is_the_same_in_both_languages(tmp_path: Path) -> None:
    assert len({read_solution(language) for language in LANGUAGES}) == 1
    assert grade_code(read_solution(), tmp_path) == {"visible": "right", "loss": "right"}


def test_the_two_planted_faults_are_told_their_cause(tmp_path: Path) -> None:
    verdicts = grade_code("", tmp_path)
    assert "for a run that begins" in verdicts["visible"]
    assert "a mean of means" in verdicts["loss"]


@pytest.mark.parametrize("name", MUTANTS["visible"])
def test_a_wrong_mask_is_told_its_cause(name: str, tmp_path: Path) -> None:
    right, wrong, words = MUTANTS["visible"][name]
    (tmp_path / "faulty.py").write_text(replace(right, wrong), "utf-8")
    verdict = script(FILES / "grade_faulty.py").grade_visible(tmp_path / "faulty.py")
    assert verdict != "right" and words in verdict, verdict
    assert "\n" not in verdict


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in COMMON else [pytest.mark.ci]) for n in MUTANTS["loss"]],
)
def test_a_wrong_loss_is_told_its_cause(name: str, tmp_path: Path) -> None:
    right, wrong, words = MUTANTS["loss"][name]
    verdict = grade_code(replace(right, wrong), tmp_path)["loss"]
    assert verdict != "right" and words in verdict, verdict
    assert "\n" not in verdict


@pytest.mark.ci
def test_a_rank_that_waits_for_the_others_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script(FILES / "grade_faulty.py"), "PATIENCE", 5.0)
    wrong = f"counts_BS.sum()\n    if axis.rank == 2:\n        count = {COUNT}"
    verdict = grade_code(replace(COUNT, wrong), tmp_path)["loss"]
    assert verdict.startswith("rank 2 waits for a collective that the other ranks have not called")


def test_each_way_equals_one_process_and_the_balance_is_that_of_the_kernel(pool: Any) -> None:
    cases: list[dict[str, Any]] = [{}, {"groups": 2}]
    counts, grouped = pool(4).run(run_reports, FILES / "attend.py", cases)[0]
    assert counts.count("equal to one process") == 3
    assert "ulysses: refused" in grouped and "at most 2 ranks" in grouped
    assert "rank 1    8,256  16,384       0       0, together 24,640" in counts  # in runs
    share = 128
    for rank in range(4):
        row = [
            len(range(share)[rows]) * len(range(share)[keys])
            if not causal
            else share * (share + 1) // 2
            for step in range(4)
            for rows, keys, causal in [visible_slices(rank, (rank - step) % 4, share)]
        ]
        assert f"rank {rank} " + "".join(f"{pairs:8,}" for pairs in row) in counts


PREDICTED = {"ring": (768, 1536), "all-gather": (5,), "ulysses": 384, "in runs": 1.75}


def run_solution(world: World, cases: list[dict[str, Any]]) -> list[str]:
    faulty = script(FILES / "attend.py").faulty
    with patch.dict(vars(faulty), PREDICTED=PREDICTED):
        exec(read_solution(), vars(faulty))
        return run_reports(world, FILES / "attend.py", cases)


def test_with_the_solution_both_repaired_functions_train_as_one_process_does(pool: Any) -> None:
    cases: list[dict[str, Any]] = [{"train": 2, "ignored": True}, {"mask": True}]
    faulty, _ = pool(4).run(run_reports, FILES / "attend.py", cases)[0]
    assert faulty.count("equal to one process") == 3
    trained, mask = pool(4).run(run_solution, cases)[0]
    assert trained.count("equal to one process") == 5
    assert mask.splitlines()[-1].split() == ["error", *["0.00"] * 8]


def test_predictions_are_shown_behind_what_was_counted_however_they_are_written(pool: Any) -> None:
    (counts,) = pool(4).run(run_solution, [{}])[0]
    shown = [line.partition("; you predicted ")[2] for line in counts.splitlines()]
    assert [words for words in shown if words] == [
        "1.75", "nothing", "768", "1536", "5", "nothing", "384", "384", "nothing",
    ]  # fmt: skip
