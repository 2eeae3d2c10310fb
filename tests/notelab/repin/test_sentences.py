"""A page is cut into the sentences that speak of a source, each with what it names and cites."""

from pathlib import Path

import pytest

from notelab.book.workbook import open_lab
from notelab.repin.carried import Place
from notelab.repin.sentences import Sentence, about
from tests.notelab.scratch import Scratch

PAGE = """\
# A page

What `combine` returns is a length
`pkg/scaler.py:L22-L25`. It is said on p. 3, e.g. of a plane, in v2. `Scaler` counts
(`uses`) `pkg/scaler.py:L15`! `pkg/scaler.py:L14-L15`

Nobody cites `elsewhere`, so it speaks of no source.

| what | where | verdict | evidence |
|---|---|---|---|
| 7. `twin` is built | no: `factor` alone `pkg/scaler.py:L11` | | |
| <a id="claim-8"></a>8 | `twin` counts.<br>*notes* | **refuted** | `uses` `pkg/scaler.py:L15` |
"""


@pytest.fixture
def said(tmp_path: Path) -> list[Sentence]:
    scratch = Scratch(tmp_path)
    scratch.replace("lab.toml", 'title = "Scratch"', 'title = "Scratch"\npages = ["page.md"]')
    scratch.write("page.md", PAGE)
    scratch.write("page.es.md", PAGE)
    book = open_lab(scratch.lab, scratch.bench())
    return [one for one in about(book, "up", "en") if one.page.endswith("page.md")]


def lines(first: int, last: int) -> Place:
    return Place("pkg/scaler.py", first, last)


def test_a_sentence_has_its_words_names_citations_and_row(said: list[Sentence]) -> None:
    first, second = said[:2]
    assert first.text == "What `combine` returns is a length."
    assert (first.row, first.names, first.cited) == (3, ["combine"], [lines(22, 25)])
    assert second.text == "`Scaler` counts (`uses`)!"
    assert (second.row, second.names) == (4, ["Scaler", "uses"])


def test_a_citation_behind_the_full_stop_belongs_to_the_sentence_before(
    said: list[Sentence],
) -> None:
    assert said[1].cited == [lines(15, 15), lines(14, 15)]


def test_all_names_and_citations_of_a_paragraph_are_around_each_sentence(
    said: list[Sentence],
) -> None:
    assert said[0].around == ["combine", "Scaler", "uses"]
    assert said[0].beside == [lines(22, 25), lines(15, 15), lines(14, 15)]


def test_a_row_that_cites_is_cut_by_columns_each_told_after_the_first(
    said: list[Sentence],
) -> None:
    naming, citing = (one for one in said if one.row == 11)
    assert (naming.text, naming.names, naming.cited) == ("7. `twin` is built", ["twin"], [])
    assert citing.text == "7. `twin` is built — no: `factor` alone"
    assert citing.cited == [lines(11, 11)]


def test_a_claims_row_is_told_by_the_claims_words(said: list[Sentence]) -> None:
    claim = [one for one in said if one.anchor == "claim-8"]
    assert {one.text for one in claim} == {"8. `twin` counts."}
    assert [one.cited for one in claim if one.cited] == [[lines(15, 15)]]


def test_what_cites_no_source_is_no_sentence_about_one(said: list[Sentence]) -> None:
    assert not any("elsewhere" in one.names for one in said)
