"""Lab 06: the solution is right, and each usual mistake is told its cause."""

from __future__ import annotations

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

ROWS, COLUMNS = "place(rank)", "place(owner)"
COMPARED = "place(rank).unsqueeze(1) >= place(owner)"
PLACE = "torch.cat([early * half + inside, late * half + inside])"
CHUNKS = "early, late = rank, 2 * ranks - 1 - rank"

# What is replaced in the solution, by what, and words of the cause that the grader says.
WRONG_MASKS = {
    "own key hidden": (COMPARED, COMPARED.replace(">=", ">"), "its own key"),
    "past hidden": (COMPARED, COMPARED.replace(">=", "<="), "not from there on"),
    "transposed": (COMPARED, f"{COLUMNS}.unsqueeze(1) >= {ROWS}", "has the queries, in rows"),
    "all visible": (COMPARED, f"({COMPARED}) | True", "Nothing is masked"),
    "own keys masked only": (
        COMPARED,
        f"({COMPARED}) | (rank != owner)",
        "Other ranks have keys of the future",
    ),
    "own keys only": (
        COMPARED,
        f"({COMPARED}) & (rank == owner)",
        "Other ranks have keys of the past",
    ),
    "nothing of later ranks": (
        COMPARED,
        f"({COMPARED}) & (rank >= owner)",
        "A later rank has keys of the past",
    ),
    "chunks only": (
        COMPARED,
        "place(rank).unsqueeze(1) // half >= place(owner) // half",
        "compares chunks only",
    ),
    "a run": (PLACE, "rank * share + torch.arange(share)", "for a run that begins"),
    "index as position": (PLACE, "torch.arange(share)", "an index in the share for a position"),
    "one at a time": (PLACE, "torch.arange(share) * ranks + rank", "one at a time"),
    "late first": (
        PLACE,
        "torch.cat([late * half + inside, early * half + inside])",
        "comes first in its share",
    ),
    "late mirrored": (
        PLACE,
        "torch.cat([early * half + inside, late * half + inside.flip(0)])",
        "keep their order",
    ),
    "n + r": (CHUNKS, "early, late = rank, ranks + rank", "not n + r"),
    "n - 1 - r": (CHUNKS, "early, late = rank, ranks - 1 - rank", "not n − 1 − r"),
    "numbers": (COMPARED, f"({COMPARED}).float()", "expected bool"),
    "all ranks' keys": (
        COMPARED,
        f"({COMPARED}).repeat(1, ranks)",
        "expected shape [8, 8], found [8, 32]",
    ),
    "no return": ("return place(rank)", "place(rank)", "needs a `return`"),
    "no such name": (CHUNKS, "early, late = rank, n", "NameError"),
    "one pair": (
        COMPARED,
        f"({COMPARED}) & ((rank, owner) != (2, 1))",
        "none of the usual mistakes",
    ),
}
COUNT = "axis.all_reduce(counts_BS.sum())"
SUM = "(losses_BS * counts_BS).sum()"
LOSS = f"axis.size * {SUM} / count"
WRONG_LOSSES = {
    "mean of means": (LOSS, f"{SUM} / counts_BS.sum()", "a mean of means"),
    "mean of means, guarded": (LOSS, f"{SUM} / counts_BS.sum().clamp(min=1)", "a mean of means"),
    "no factor": (LOSS, f"{SUM} / count", "multiply by axis.size"),
    "divided by n": (LOSS, f"{SUM} / count / axis.size", "divides by n where"),
    "n twice": (LOSS, f"axis.size * {LOSS}", "once too often"),
    "not divided": (LOSS, SUM, "not divided by the count"),
    "times n, not divided": (LOSS, f"axis.size * {SUM}", "but not divided"),
    "all tokens": (
        LOSS,
        f"axis.size * {SUM} / axis.all_reduce(torch.ones_like(counts_BS).sum())",
        "that don't",
    ),
    "all tokens of this rank": (
        LOSS,
        f"{SUM} / counts_BS.numel() / axis.size",
        "all tokens of this rank",
    ),
    "losses not masked": (SUM, "losses_BS.sum()", "are in the sum"),
    "the mean of all": (LOSS, "losses_BS.mean()", "the mean of all tokens"),
    "the largest count": (
        COUNT,
        "axis.size * axis.all_reduce(counts_BS.sum(), op='max')",
        "the largest",
    ),
    "sequences": (
        LOSS,
        f"({SUM[:-2]}(1) / counts_BS.sum(1).clamp(min=1)).mean()",
        "means of sequences",
    ),
    "weighed, unguarded": (
        LOSS,
        f"{SUM} / counts_BS.sum() * axis.size * counts_BS.sum() / count",
        "rank 0 counts no token",
    ),
    "losses summed over ranks": (
        SUM,
        "axis.all_reduce((losses_BS * counts_BS).sum().detach())",
        "no gradient leads back",
    ),
    "not summed over tokens": (SUM, "(losses_BS * counts_BS)", "expected shape [], found [2, 4]"),
    "a Python number": (LOSS, f"({LOSS}).item()", "expected a tensor, found float"),
    "no return": (f"return {LOSS}", LOSS, "needs a `return`"),
    "no such name": (LOSS, "n * loss", "NameError"),
    "squared": (LOSS, f"({LOSS}) ** 2", "none of the usual mistakes"),
}
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


@pytest.mark.parametrize("name", WRONG_MASKS)
def test_a_wrong_mask_is_told_its_cause(name: str, tmp_path: Path) -> None:
    right, wrong, words = WRONG_MASKS[name]
    (tmp_path / "faulty.py").write_text(replace(right, wrong), "utf-8")
    verdict = script(FILES / "grade_faulty.py").grade_visible(tmp_path / "faulty.py")
    assert verdict != "right" and words in verdict, verdict
    assert "\n" not in verdict


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in COMMON else [pytest.mark.ci]) for n in WRONG_LOSSES],
)
def test_a_wrong_loss_is_told_its_cause(name: str, tmp_path: Path) -> None:
    right, wrong, words = WRONG_LOSSES[name]
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
