"""Choices are paired by what they cover, and as a whole as well as can be."""

import random
from itertools import permutations

import pytest

from notelab.compare.choices import Choice, Cited
from notelab.compare.matching import Pair, _best, compared


def choice(title: str, *cited: tuple[str, int, int, str]) -> Choice:
    return Choice(title, "note.md", 1, tuple(Cited("up", *one) for one in cited))


def titles(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(mine.title if mine else "", other.title if other else "") for mine, other in pairs]


def paired(yours: list[Choice], theirs: list[Choice]) -> list[tuple[str, str]]:
    return titles(compared(yours, theirs).matched)


def test_lines_in_common_pair_two_choices_and_what_is_left_is_missed_or_yours() -> None:
    mine = [choice("a", ("x.py", 1, 5, "")), choice("b", ("x.py", 50, 60, ""))]
    other = [choice("A", ("x.py", 5, 9, "")), choice("C", ("y.py", 50, 60, ""))]
    found = compared(mine, other)
    assert titles(found.matched) == [("a", "A")]
    assert titles(found.missed) == [("", "C")]
    assert titles(found.yours) == [("b", "")]


def test_the_same_innermost_symbol_pairs_them_too_but_yields_to_lines_in_common() -> None:
    mine = [choice("a", ("x.py", 10, 12, "f"))]
    near, exact = choice("N", ("x.py", 20, 22, "f")), choice("E", ("x.py", 12, 14, "f"))
    assert paired(mine, [near]) == [("a", "N")]
    assert paired(mine, [near, exact]) == [("a", "E")]


def test_the_module_is_no_symbol_and_another_source_is_another_file() -> None:
    mine = [choice("a", ("x.py", 1, 2, ""))]
    assert paired(mine, [choice("A", ("x.py", 8, 9, ""))]) == []
    foreign = Choice("B", "note.md", 1, (Cited("down", "x.py", 1, 2),))
    assert paired(mine, [foreign]) == []


def test_a_pair_that_leaves_another_without_partner_yields_to_two_pairs() -> None:
    mine = [
        choice("both", ("x.py", 1, 10, ""), ("x.py", 20, 30, "")),
        choice("first", ("x.py", 1, 8, "")),
    ]
    other = [choice("A", ("x.py", 1, 10, "")), choice("B", ("x.py", 25, 30, ""))]
    assert sorted(paired(mine, other)) == [("both", "B"), ("first", "A")]


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (4, 2), (4, 4), (3, 5), (0, 3)])
def test_no_assignment_has_a_greater_sum(shape: tuple[int, int]) -> None:
    rows, columns = shape
    for seed in range(30):
        draw = random.Random(seed)
        gains = [[draw.choice([0.0, draw.random()]) for _ in range(columns)] for _ in range(rows)]
        pairs = _best(gains)
        assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == min(shape)
        long, few = max(shape), min(shape)
        every = (
            sum(gains[i][j] if rows <= columns else gains[j][i] for i, j in enumerate(order))
            for order in permutations(range(long), few)
        )
        assert sum(gains[i][j] for i, j in pairs) == pytest.approx(max(every))


def test_nothing_written_or_nothing_to_compare_with_pairs_nothing() -> None:
    one = choice("a", ("x.py", 1, 2, "f"))
    assert compared([], [one]).missed == [(None, one)]
    assert compared([one], []).yours == [(one, None)]
    assert compared([choice("empty")], [one]).matched == []
