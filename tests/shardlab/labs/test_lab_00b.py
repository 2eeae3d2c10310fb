"""Lab 00b: the solution is right, and each usual mistake is told in the words that mend it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pages.blocks import LANGUAGES, lab_page
from pages.runs.lab_00b import (
    FILES,
    LAB,
    PARTS,
    Mistake,
    grade_code,
    grade_mistake,
    grader,
    read_solution,
)

# By part: the wrong answers by the sentence of the docstrings that they break, and right ones.
ANSWERS = {
    part: tomllib.loads((Path(__file__).parent / f"mutants/{part}.toml").read_text("utf-8"))
    for part in PARTS
}
MUTANTS = {
    (part, name): mutant
    for part, answers in ANSWERS.items()
    for mutants in answers["contract"].values()
    for name, mutant in mutants.items()
}
OTHER_WAYS = {
    (part, name): change
    for part, answers in ANSWERS.items()
    for name, change in answers["other_ways"].items()
}
# The usual mistakes, for the ordinary suite; `ci` has them all.
COMMON = [
    ("linears", "contiguous, then summed in place"),
    ("linears", "f forgets to return"),
    ("linears", "one rank sums"),
    ("replicas", "from the first"),
    ("replicas", "closed when reached"),
    ("unit", "whole after forward"),
]


def matches(message: str, pattern: str) -> bool:
    return re.search(".*".join(map(re.escape, pattern.split("*"))), message) is not None


def test_the_solution_is_the_same_in_both_languages_and_its_linears_are_right(
    tmp_path: Path,
) -> None:
    for part in PARTS:
        assert len({read_solution(part, language) for language in LANGUAGES}) == 1
    assert grade_code("linears", read_solution("linears"), tmp_path) == "right"


ONE, TWO = ("all_reduce", 8), ("all_gather", 16)
RIGHT, RAISED, DIED = ("right", ""), ("raised", "closed by peer"), ("died", "exit code 3")


@pytest.mark.parametrize(
    ("first", "second", "beginning"),
    [
        (([ONE], None), ([ONE], None), ""),
        (([ONE], RIGHT), ([], None), ""),  # the second is on its way
        (([ONE], RIGHT), ([ONE], RIGHT), "right"),
        (([ONE], RIGHT), ([ONE, TWO], None), "rank 1 enters all_gather of 16 B (its collective 2)"),
        (([ONE, TWO], RAISED), ([ONE], RIGHT), "rank 0 enters all_gather of 16 B"),
        (([ONE, ONE], None), ([ONE, TWO], RAISED), "rank 0 enters all_reduce of 8 B (its coll"),
        (([ONE], RAISED), ([ONE], DIED), "on rank 1, exit code 3"),
        (([ONE, TWO], RAISED), ([ONE], DIED), "on rank 1, exit code 3"),
    ],
)
def test_the_rank_that_is_the_cause_is_named_and_not_the_one_that_waits_for_it(
    first: Any, second: Any, beginning: str
) -> None:
    heard = [grader().Heard(rank, *state) for rank, state in enumerate((first, second))]
    verdict = grader().verdict(heard)
    assert verdict.startswith(beginning) and bool(verdict) == bool(beginning)


@pytest.mark.ci
@pytest.mark.parametrize("part", PARTS[1:])
def test_the_solution_is_right(part: str, tmp_path: Path) -> None:
    assert grade_code(part, read_solution(part), tmp_path) == "right"


@pytest.mark.parametrize(("part", "name"), COMMON)
def test_a_common_mistake_is_told_in_words_that_name_it(
    part: str, name: str, tmp_path: Path
) -> None:
    refuse(part, name, tmp_path)


@pytest.mark.ci
@pytest.mark.parametrize(("part", "name"), [key for key in MUTANTS if key not in COMMON])
def test_every_mutant_is_refused_in_words_that_name_it(
    part: str, name: str, tmp_path: Path
) -> None:
    refuse(part, name, tmp_path)


def refuse(part: str, name: str, folder: Path) -> None:
    right, wrong, words = MUTANTS[part, name]
    message = grade_mistake(Mistake(part, right, wrong), folder)
    assert message != "right" and matches(message, words), message
    assert "\n" not in message


@pytest.mark.ci
@pytest.mark.parametrize(("part", "name"), OTHER_WAYS)
def test_what_the_docstrings_leave_open_may_be_done_otherwise(
    part: str, name: str, tmp_path: Path
) -> None:
    assert grade_mistake(Mistake(part, *OTHER_WAYS[part, name]), tmp_path) == "right"


@pytest.mark.parametrize("part", PARTS)
def test_mutants_break_sentences_of_the_skeleton_each_under_a_name_of_its_own(part: str) -> None:
    contract = ANSWERS[part]["contract"]
    skeleton = " ".join((FILES / f"{part}.py").read_text("utf-8").split())
    for sentence in contract:
        assert sentence in skeleton, sentence
    names = [name for mutants in contract.values() for name in mutants]
    assert len({*names}) == len(names)
    assert {key for key in MUTANTS if key[0] == part} == {(part, name) for name in names}


def test_a_right_answer_is_shown_what_it_sent_beside_what_was_predicted(tmp_path: Path) -> None:
    predicted = 'PREDICTED = {"F": (0, 96), "G": (None, None), "row": (1, 2)}\n'
    (tmp_path / "linears.py").write_text(predicted + read_solution("linears"), "utf-8")
    assert grader().grade("linears", tmp_path) == (
        "right",
        [
            "F: 0 B forward, 96 B backward; you predicted 0, 96",
            "G: 96 B forward, 0 B backward; you predicted nothing",
            "column: 0 B forward, 96 B backward; you predicted nothing",
            "row: 144 B forward, 0 B backward; you predicted 1, 2",
        ],
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_skeleton_asks_for_predictions_and_no_solution_has_them(part: str) -> None:
    names: dict[str, dict[str, Any]] = {}
    lines = (FILES / f"{part}.py").read_text("utf-8").split("\n\n")
    (block,) = [line.strip() for line in lines if line.strip().startswith("# Before you run it")]
    exec(block, names)
    assert all(p is None or {*p} == {None} for p in names["PREDICTED"].values())


@pytest.mark.ci
def test_a_loop_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader(), "PATIENCE", 2.0)  # it is without end, so any time is too short
    code = read_solution("linears").replace(
        "return dy_ND", "\n        while True:\n            pass"
    )
    assert matches(
        grade_code("linears", code, tmp_path), "rank * has not answered for 2 s; so far it has"
    )


@pytest.mark.ci
@pytest.mark.parametrize("part", PARTS)
def test_a_skeleton_is_still_to_be_written_and_says_what_to_read_which_the_page_cites(
    part: str,
) -> None:
    assert grader().grade(part)[0].startswith("still to be written: ")
    code = (FILES / f"{part}.py").read_text("utf-8")
    missing = re.findall(r'NotImplementedError\(\s*"(.*?): read (.*?)"', code)
    assert len(missing) == code.count("raise NotImplementedError")
    text = lab_page(LAB, "en").read_text("utf-8")
    for what, names in missing:
        for name in re.split(r",? and |, ", names):
            assert f"`{name}`" in text, (what, name)
