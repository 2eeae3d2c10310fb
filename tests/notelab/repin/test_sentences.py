"""A page is split into the sentences about a source, each with what it names and cites."""

from pathlib import Path

import pytest

from notelab.book.workbook import open_lab
from notelab.repin.changes import Place
from notelab.repin.sentences import Sentence, find_sentences
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
def sentences(tmp_path: Path) -> list[Sentence]:
    scratch = Scratch(tmp_path)
    scratch.replace("lab.toml", 'title = "Scratch"', 'title = "Scratch"\npages = ["page.md"]')
    scratch.write("page.md", PAGE)
    scratch.write("page.es.md", PAGE)
    book = open_lab(scratch.lab, scratch.bench())
    return [
        sentence
        for sentence in find_sentences(book, "up", "en")
        if sentence.page.endswith("page.md")
    ]


def lines(first: int, last: int) -> Place:
    return Place("pkg/scaler.py", first, last)


def test_a_sentence_has_its_words_names_citations_and_row(sentences: list[Sentence]) -> None:
    first, second = sentences[:2]
    assert first.text == "What `combine` returns is a length."
    assert (first.row, first.names, first.places) == (3, ["combine"], [lines(22, 25)])
    assert second.text == "`Scaler` counts (`uses`)!"
    assert (second.row, second.names) == (4, ["Scaler", "uses"])


def test_a_citation_behind_the_full_stop_belongs_to_the_sentence_before(
    sentences: list[Sentence],
) -> None:
    assert sentences[1].places == [lines(15, 15), lines(14, 15)]


def test_all_names_and_citations_of_a_paragraph_are_around_each_sentence(
    sentences: list[Sentence],
) -> None:
    assert sentences[0].block_names == ["combine", "Scaler", "uses"]
    assert sentences[0].block_places == [lines(22, 25), lines(15, 15), lines(14, 15)]


def test_a_row_that_cites_is_split_by_columns_each_after_the_first(
    sentences: list[Sentence],
) -> None:
    naming, citing = (sentence for sentence in sentences if sentence.row == 11)
    assert (naming.text, naming.names, naming.places) == ("7. `twin` is built", ["twin"], [])
    assert citing.text == "7. `twin` is built — no: `factor` alone"
    assert citing.places == [lines(11, 11)]


def test_a_claims_row_has_the_claims_words(sentences: list[Sentence]) -> None:
    claim = [sentence for sentence in sentences if sentence.anchor == "claim-8"]
    assert {sentence.text for sentence in claim} == {"8. `twin` counts."}
    assert [sentence.places for sentence in claim if sentence.places] == [[lines(15, 15)]]


def test_what_cites_no_source_is_no_sentence_about_one(sentences: list[Sentence]) -> None:
    assert not any("elsewhere" in sentence.names for sentence in sentences)
