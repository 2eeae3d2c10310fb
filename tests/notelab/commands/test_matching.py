"""Choices are matched by the lines that both cite; a hit is never counted as missed."""

from notelab.book.opening import open_session
from notelab.book.workbook import open_lab
from notelab.commands.choices import Choice, CitedRange, Pair, match_choices, read_choices
from tests.docs.page import ROOT


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


def test_lines_in_common_match_two_choices_and_the_rest_is_missed_or_own() -> None:
    own_choices = [choice("a", ("x.py", 1, 5, "")), choice("b", ("x.py", 50, 60, ""))]
    solution_choices = [choice("A", ("x.py", 5, 9, "")), choice("C", ("y.py", 50, 60, ""))]
    comparison = match_choices(own_choices, solution_choices)
    assert titles(comparison.matched) == [("a", "A")]
    assert titles(comparison.missed) == [("", "C")]
    assert titles(comparison.own_only) == [("b", "")]


def test_every_choice_that_shares_a_line_is_a_partner_the_fullest_first() -> None:
    own_choices = [choice("a", ("x.py", 1, 10, ""), ("x.py", 40, 40, ""))]
    solution_choices = [
        choice("part", ("x.py", 10, 90, "")),
        choice("all", ("x.py", 1, 20, ""), ("x.py", 40, 40, ""), ("y.py", 1, 99, "")),
    ]
    comparison = match_choices(own_choices, solution_choices)
    assert titles(comparison.matched) == [("a", "all"), ("a", "part")]
    assert comparison.missed == []


def test_where_the_lines_are_alike_words_and_code_names_decide() -> None:
    own_choice = Choice(
        "a", "note.md", 1, (CitedRange("up", "x.py", 1, 2),), words=frozenset({"limiter"})
    )
    other, same = (
        Choice(title, "s.md", 1, (CitedRange("up", "x.py", 1, 2),), words=frozenset({title}))
        for title in ("gather", "limiter")
    )
    comparison = match_choices([own_choice], [other, same])
    assert titles(comparison.matched) == [("a", "limiter"), ("a", "gather")]


def test_the_same_innermost_symbol_matches_one_choice_if_no_line_is_shared() -> None:
    own_choices = [choice("a", ("x.py", 10, 12, "f"))]
    same_symbol, same_lines = choice("N", ("x.py", 20, 22, "f")), choice("E", ("x.py", 12, 14, "f"))
    assert matched_titles(own_choices, [same_symbol, same_symbol]) == [("a", "N")]
    assert matched_titles(own_choices, [same_symbol, same_lines]) == [("a", "E")]


def test_the_module_is_no_symbol_and_another_source_is_another_file() -> None:
    own_choices = [choice("a", ("x.py", 1, 2, ""))]
    assert matched_titles(own_choices, [choice("A", ("x.py", 8, 9, ""))]) == []
    foreign = Choice("B", "note.md", 1, (CitedRange("down", "x.py", 1, 2),))
    assert matched_titles(own_choices, [foreign]) == []


def test_nothing_written_or_nothing_to_compare_with_matches_nothing() -> None:
    single = choice("a", ("x.py", 1, 2, "f"))
    assert match_choices([], [single]).missed == [(None, single)]
    assert match_choices([single], []).own_only == [(single, None)]
    assert match_choices([choice("empty")], [single]).matched == []


def test_a_note_of_one_citation_of_each_reference_choice_misses_none_of_them() -> None:
    bench = open_session((), offline=True)
    book = open_lab(ROOT / "experiments/35-reading-notes", bench)
    _, reference = read_choices(book, ROOT / "solutions/03-reading-ref.md")
    assert len(reference) >= 60
    sections = {choice.section for choice in reference}
    assert len(sections.intersection(book.lab.file.lab.candidates)) == 2
    own_choices = [
        Choice("", "note.md", row, (one_citation,))
        for row, choice in enumerate(reference)
        for one_citation in choice.citations[row % len(choice.citations) :][:1]
    ]
    comparison = match_choices(own_choices, reference)
    assert titles(comparison.missed) == [] and titles(comparison.own_only) == []
