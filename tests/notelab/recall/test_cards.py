"""A page's folded questions are cards, each with a name, an answer and what it rests on."""

import re
from pathlib import Path

import pytest

from notelab.errors import NotelabError
from notelab.recall.cards import Card, Quantity, collect_cards, parse_cards
from tests.docs.page import ROOT, spanish_page
from tests.notelab.scratch import Scratch

PAGE = """\
---
title: A page
---

# A page

??? question named "Why `x`?"
    Because.

    - And `pkg/scaler.py:L14-L15` says so.

??? tip "No card"
    A hint.

???+ question number how-many "How many?"
    **768 KiB**: three times 256.

Text.

    ??? question "an example, in code"
        nothing

??? question "Unnamed?"
    Third.
"""
CARDS = """
??? question own "Counted when?"
    First, `uses` at `pkg/scaler.py:L14-L15`.

??? question none "And what else?"
    Nothing cited.
"""
WORKBOOK = [
    page
    for folder in ("docs/theory", "docs/labs")
    for page in sorted((ROOT / folder).glob("*.md"))
    if not page.name.endswith(".es.md") and not page.name.startswith("03-annotated")
]


def collect(scratch: Scratch, language: str = "en") -> list[Card]:
    return collect_cards({scratch.lab: None}, language, scratch.bench())


def test_a_pages_questions_are_its_cards_and_nothing_else_is() -> None:
    cards = list(parse_cards(PAGE, "docs/page"))
    assert [card.id for card in cards] == [
        f"docs/page#{name}" for name in ("named", "how-many", "3")
    ]
    assert cards[0].question == "Why `x`?"
    assert cards[0].answer == "Because.\n\n- And `pkg/scaler.py:L14-L15` says so."
    assert cards[1].number == Quantity(768 * 1024, "B")
    assert cards[0].number is cards[2].number is None


@pytest.mark.parametrize("answer", ["768 KiB.", "**plenty**", "", "Well, **3**"])
def test_a_number_card_without_its_number_in_bold_first_says_how(answer: str) -> None:
    page = f'??? question number x "How many?"\n    {answer}\n'
    with pytest.raises(NotelabError, match=r"How many\?: .* number in bold") as raised:
        list(parse_cards(page, "page"))
    assert "768 KiB" in raised.value.hint


def test_a_card_rests_on_its_citations_or_on_those_of_its_page(scratch: Scratch) -> None:
    scratch.write("note.md", scratch.read("note.md") + CARDS)
    scratch.lock()
    citing, uncited = collect(scratch)
    assert citing.evidence and uncited.evidence and citing.evidence != uncited.evidence
    # Other lines change: what rests on the whole page is shaken, what rests on its own isn't.
    rows = scratch.read("citations.lock").splitlines()
    at = next(number for number, row in enumerate(rows) if "L22-L25" in row)
    rows[at] = re.sub(r'"sha256": "\w{8}', '"sha256": "00000000', rows[at])
    scratch.write("citations.lock", "\n".join(rows))
    now = collect(scratch)
    assert now[0].evidence == citing.evidence
    assert now[1].evidence != uncited.evidence


def test_a_page_has_the_same_cards_in_both_languages(scratch: Scratch) -> None:
    scratch.write("note.md", scratch.read("note.md") + CARDS)
    scratch.write("note.es.md", scratch.read("note.es.md") + CARDS)
    scratch.lock()
    english, castilian = collect(scratch), collect(scratch, "es")
    assert [(card.id, card.evidence) for card in english] == [(c.id, c.evidence) for c in castilian]
    assert {card.page.name for card in castilian} == {"note.es.md"}


@pytest.mark.parametrize("page", WORKBOOK, ids=lambda page: page.name)
def test_the_workbooks_cards_are_named_and_ask_for_the_same_in_both_languages(page: Path) -> None:
    english = list(parse_cards(page.read_text("utf-8"), "page"))
    translated = list(parse_cards(spanish_page(page).read_text("utf-8"), "page"))
    assert [card.id for card in english] == [card.id for card in translated]
    assert len({card.id for card in english}) == len(english)
    assert not [card.id for card in english if card.id.rpartition("#")[2].isdigit()]
    values = [
        [card.number and card.number.value for card in cards] for cards in (english, translated)
    ]
    assert values[0] == values[1]


def test_there_are_numbers_to_answer_on_theory_and_lab_pages() -> None:
    counts = {
        folder: sum(
            card.number is not None
            for page in WORKBOOK
            if page.parent.name == folder
            for card in parse_cards(page.read_text("utf-8"), "page")
        )
        for folder in ("theory", "labs")
    }
    assert counts["theory"] >= 6 and counts["labs"] >= 2
