"""Choices are paired by what they cover, and as a whole as well as can be."""

import random
from itertools import permutations

import pytest

from notelab.compare.choices import Choice, CitedRange
from notelab.compare.matching import Pair, _best_assignment, match_choices


def choice(title: str, *cited: tuple[str, int, int, str]) -> Choice:
    return Choice(title, "note.md", 1, tuple(CitedRange("up", *row) for row in cited))


def titles(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [
        (choice_a.title if choice_a else "", choice_b.title if choice_b else "")
        for choice_a, choice_b in pairs
    ]


def matched_titles(
    own_choices: list[Choice], solution_choices: list[Choice]
) -> list[tuple[str, str]]:
    return titles(match_choices(own_choices, solution_choices).matched)


def test_lines_in_common_pair_two_choices_and_the_rest_is_missed_or_own() -> None:
    own_choices = [choice("a", ("x.py", 1, 5, "")), choice("b", ("x.py", 50, 60, ""))]
    solution_choices = [choice("A", ("x.py", 5, 9, "")), choice("C", ("y.py", 50, 60, ""))]
    comparison = match_choices(own_choices, solution_choices)
    assert titles(comparison.matched) == [("a", "A")]
    assert titles(comparison.missed) == [("", "C")]
    assert titles(comparison.own_only) == [("b", "")]


def test_the_same_innermost_symbol_pairs_them_too_but_yields_to_lines_in_common() -> None:
    own_choices = [choice("a", ("x.py", 10, 12, "f"))]
    same_symbol, same_lines = choice("N", ("x.py", 20, 22, "f")), choice("E", ("x.py", 12, 14, "f"))
    assert matched_titles(own_choices, [same_symbol]) == [("a", "N")]
    assert matched_titles(own_choices, [same_symbol, same_lines]) == [("a", "E")]


def test_the_module_is_no_symbol_and_another_source_is_another_file() -> None:
    own_choices = [choice("a", ("x.py", 1, 2, ""))]
    assert matched_titles(own_choices, [choice("A", ("x.py", 8, 9, ""))]) == []
    foreign = Choice("B", "note.md", 1, (CitedRange("down", "x.py", 1, 2),))
    assert matched_titles(own_choices, [foreign]) == []


def test_a_pair_that_leaves_another_without_partner_yields_to_two_pairs() -> None:
    own_choices = [
        choice("both", ("x.py", 1, 10, ""), ("x.py", 20, 30, "")),
        choice("first", ("x.py", 1, 8, "")),
    ]
    solution_choices = [choice("A", ("x.py", 1, 10, "")), choice("B", ("x.py", 25, 30, ""))]
    assert sorted(matched_titles(own_choices, solution_choices)) == [("both", "B"), ("first", "A")]


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (4, 2), (4, 4), (3, 5), (0, 3)])
def test_no_assignment_has_a_greater_sum(shape: tuple[int, int]) -> None:
    rows, columns = shape
    for seed in range(30):
        draw = random.Random(seed)
        gains = [[draw.choice([0.0, draw.random()]) for _ in range(columns)] for _ in range(rows)]
        pairs = _best_assignment(gains)
        assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == min(shape)
        long, few = max(shape), min(shape)
        every = (
            sum(gains[i][j] if rows <= columns else gains[j][i] for i, j in enumerate(order))
            for order in permutations(range(long), few)
        )
        assert sum(gains[i][j] for i, j in pairs) == pytest.approx(max(every))


def test_nothing_written_or_nothing_to_compare_with_pairs_nothing() -> None:
    single = choice("a", ("x.py", 1, 2, "f"))
    assert match_choices([], [single]).missed == [(None, single)]
    assert match_choices([single], []).own_only == [(single, None)]
    assert match_choices([choice("empty")], [single]).matched == []
