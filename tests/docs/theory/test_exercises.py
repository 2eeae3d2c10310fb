"""The worked problems of the theory: what their answers say is computed, in both languages.

`exercises.toml` has a table for each problem, under the page's name and the problem's. `given`
names numbers of the question. Every other key is a number or a list that the problem prints, with
the expression that gives it to its last digit, by shardlab's formulas where they have it. `let`
names expressions for the others. `test_numerals.py` says what an entry may be instead.

Three rules hold an answer: what it prints in bold is in its table; its equations of numbers hold;
each other number is in the question or in the table.
"""

import builtins
import math
import re
import tomllib
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from costlab.layouts.memory import layer_parameters, rank_bytes
from shardlab.context.zigzag import positions
from shardlab.data.blend import greedy_order, normalize_weights
from shardlab.data.build import SURPLUS
from shardlab.data.corpus import DTYPES, HEAD
from shardlab.data.samples import SEPARATE_SHARE, Recipe, build_indices
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.routing import drop, load_loss
from shardlab.grid.layout import Layout
from shardlab.grid.rules import divisors
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import bubble, peak_live, simulate
from tests.docs import test_numerals
from tests.docs.page import EXERCISE, spanish_page
from tests.docs.test_numerals import PAGES, SCALE, UNIT, find_fault, normalize

TABLES = tomllib.loads(Path(__file__).with_name("exercises.toml").read_text("utf-8"))
VALUE = re.compile(rf"(?<![\w.,])(\d+(?:,\d{{3}})*(?:\.\d+)?)(?: ?({UNIT}|B)(?![\w/]))?")
EQUATION = re.compile(rf"(?:(?:{VALUE.pattern}|[−+·/()⌈⌉⌊⌋²=≈]) ?)+")
NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
PLACE = re.compile(r"\b[Ss]tage \d+|\b[Rr]ank \d+|\bmicro-batch \d+")  # a name, not a result
BOLD = re.compile(r"\*\*(.+?)\*\*")
OPERATORS = {"−": "-", "·": "*", "²": "**2", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")"}
FUNCTIONS = (
    *(by_name, simulate, peak_live, Layout, divisors, positions, layer_parameters),
    *(rank_bytes, build_indices, Recipe, greedy_order, normalize_weights),
    *(ExpertConfig, drop, load_loss, math.floor),
)
NAMES: dict[str, Any] = {
    **{each.__name__: each for each in FUNCTIONS},
    **{"SEPARATE_SHARE": SEPARATE_SHARE, "SURPLUS": SURPLUS, "HEAD": HEAD, "DTYPES": DTYPES},
    **test_numerals.NAMES,  # whose `bubble` takes a schedule's name
    **{"lost": bubble, "np": np, "torch": torch, "__builtins__": builtins},
}


class Exercise(NamedTuple):
    """A problem's name, and its question and answer on one line each, with English numerals."""

    name: str
    question: str
    answer: str


def read_exercises(text: str, *, spanish: bool = False) -> list[Exercise]:
    """Return a page's problems, in order."""
    return [
        Exercise(name, *(normalize(part, spanish=spanish) for part in (question, answer)))
        for _, question, name, answer in EXERCISE.findall(text)
    ]


def contains(words: str, text: str) -> bool:
    """Return whether a text has these words, not as a part of a longer word or number."""
    return re.search(rf"(?<![\w.,]){re.escape(words)}(?!\w)", text) is not None


def find_value(match: "re.Match[str]") -> float:
    """Return the number that a `VALUE` is, in bytes or seconds."""
    return float(match[1].replace(",", "")) * SCALE.get(match[2] or "", 1)


def evaluate(side: str) -> float:
    """Return what one side of an equation comes to."""
    side = VALUE.sub(lambda match: f"({find_value(match)!r})", side.strip().rstrip("( "))
    for symbol, operator in OPERATORS.items():
        side = side.replace(symbol, operator)
    surplus = side.count("(") - side.count(")")  # a parenthesis of the sentence
    side = side.replace("(", "", surplus) if surplus > 0 else side[: len(side) + surplus]
    return float(eval(side, {"ceil": math.ceil, "floor": math.floor}))


def list_equations(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each equation of numbers in a text, whole and as its sides."""
    for match in EQUATION.finditer(text.replace("**", "")):
        sides = [side for side in re.split("[=≈]", match[0]) if VALUE.search(side)]
        if len(sides) > 1:
            yield match[0], sides


def find_wrong_equations(text: str) -> Iterator[str]:
    """Yield the equations of a text that don't hold to the last digit that is written."""
    for whole, sides in list_equations(text):
        try:
            values = [evaluate(side) for side in sides]
        except (SyntaxError, TypeError) as error:
            yield f"{whole}: {error}"
            continue
        for left, right, side in zip(values, values[1:], sides[1:], strict=False):
            single = VALUE.fullmatch(side.strip(" ()"))
            if not single:
                scale, digits, holds = 1, 0, math.isclose(left, right)
            else:
                scale, digits = SCALE.get(single[2] or "", 1), len(single[1].partition(".")[2])
                holds = f"{left / scale:.{digits}f}" == single[1].replace(",", "")
                if not digits and single[2] != "%":  # a whole number is hardly rounded
                    holds = holds and math.isclose(left, right, rel_tol=0.005)
            if not holds:
                yield f"{whole}: gives {left / scale:,.{digits + 2}f}"


def find_unexplained(exercise: Exercise, keys: set[str], given: set[str]) -> Iterator[str]:
    """Yield each number of a problem that no rule explains."""
    question, answer = exercise.question, exercise.answer.replace("**", "")
    for bold in BOLD.findall(exercise.answer):
        if bold not in keys and NUMBER.search(bold):
            yield f"{bold} is not in exercises.toml"
    for key in keys:
        if not contains(key, f"{question} {answer}"):
            yield f"the problem has no {key}"
    stated = {value[0] for words in given | keys for value in VALUE.finditer(words)}
    for value in VALUE.finditer(question):
        if value[2] and value[0] not in stated:
            yield f"nothing uses {value[0]}"
    known = {number for text in (question, *keys) for number in NUMBER.findall(text)}
    plain, operands = PLACE.sub(" ", answer), set[str]()
    for equation, sides in list_equations(answer):
        plain = plain.replace(equation, " ")
        singles = [side for side in sides if VALUE.fullmatch(side.strip(" ()"))]
        known |= {number for side in singles for number in NUMBER.findall(side)}
        operands |= {number for number in NUMBER.findall(equation) if len(number) > 2}
    for number in (*NUMBER.findall(plain), *sorted(operands)):
        if number not in known:
            yield f"nothing explains {number}"


def find_faults(exercise: Exercise, table: dict[str, Any]) -> list[str]:
    """Return what is wrong with a problem in English."""
    entries, names, faults = dict(table), dict(NAMES), []
    given = entries.pop("given", {})
    for name, words in given.items():
        if not contains(words, exercise.question):
            faults.append(f"the question doesn't give {words}")
        match = VALUE.search(words)
        assert match, words
        value = find_value(match)
        names[name] = int(value) if value == int(value) else value
    for name, expression in (TABLES.get("let", {}) | entries.pop("let", {})).items():
        names[name] = eval(expression, names)
    for key, origin in entries.items():
        named = test_numerals.NAMED.fullmatch(origin)
        value = 0 if named else eval(origin, names)
        if not isinstance(value, Real) and not hasattr(value, "__float__"):
            faults += [f"{key}: {origin} gives {value}"] if str(value) != key else []
        elif fault := find_fault(key if " " in key else f"{key} ", origin, names):
            faults.append(f"{key}: {fault}")
    return [
        *faults,
        *find_wrong_equations(exercise.answer),
        *find_unexplained(exercise, {*entries}, {*given.values()}),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_pages_problems_are_solved_as_the_formulas_solve_them(page: Path) -> None:
    exercises, table = read_exercises(page.read_text("utf-8")), TABLES[page.stem]
    assert 3 <= len(exercises) <= 5
    assert [exercise.name for exercise in exercises] == list(table)
    faults = {each.name: find_faults(each, table[each.name]) for each in exercises}
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_spanish_problems_have_the_same_numbers(page: Path) -> None:
    english = read_exercises(page.read_text("utf-8"))
    spanish = read_exercises(spanish_page(page).read_text("utf-8"), spanish=True)
    assert [each.name for each in spanish] == [each.name for each in english]
    for original, translated in zip(english, spanish, strict=True):
        assert list(find_wrong_equations(translated.answer)) == []
        for part in ("question", "answer"):
            plain = re.sub(r"(?<=\d),(?=\d{3})", "", getattr(original, part))
            texts = plain, getattr(translated, part)
            for pattern in (NUMBER, VALUE, BOLD) if part == "answer" else (NUMBER,):
                found = [[match[0] for match in pattern.finditer(text)] for text in texts]
                both = [sorted(filter(NUMBER.search, matches)) for matches in found]
                assert both[0] == both[1], original.name


PROBLEM = """\
**1. A question.** 4 ranks sum 64 MiB. How much does each send?

??? example sum "Answer 1"
    Each sends 2 · 3/4 · 64 MiB = **96 MiB** (in 6 steps).
"""
TABLE = {
    "given": {"n": "4 ranks", "S": "64 MiB"},
    "96 MiB": "Call('all_reduce', S, n).wire",
    "6": "steps('all_reduce', n)",
}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("**96", "**97", "gives 96.00"),
        ("2 · 3/4", "2 · 3/8", "gives 48.00"),
        ("4 ranks", "8 ranks", "the question doesn't give 4 ranks"),
        ("6 steps", "7 steps", "nothing explains 7"),
        (" = **96 MiB**", " = 96 MiB, so **5 of them**", "5 of them is not in exercises.toml"),
        (" (in 6 steps)", "", "the problem has no 6"),
    ],
)
def test_a_planted_fault_is_found(old: str, new: str, fault: str) -> None:
    assert find_faults(read_exercises(PROBLEM)[0], TABLE) == []
    faults = find_faults(read_exercises(PROBLEM.replace(old, new))[0], TABLE)
    assert any(fault in found for found in faults), faults


def test_a_changed_formula_is_found() -> None:
    table = TABLE | {"96 MiB": "Call('all_gather', S, n).wire"}
    faults = find_faults(read_exercises(PROBLEM)[0], table)
    assert faults == ["96 MiB: Call('all_gather', S, n).wire gives 48"]
