"""A page's folded questions are cards, each with a name, an answer and what it rests on."""

import re
from pathlib import Path

import pytest

from notelab.errors import NotelabError
from notelab.recall.cards import Card, of_labs, of_page
from notelab.recall.quantity import Quantity
from tests.docs.page import ROOT, spanish
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


def cards_of(scratch: Scratch, language: str = "en") -> list[Card]:
    return of_labs({scratch.lab: None}, language, scratch.bench())


def test_a_pages_questions_are_its_cards_and_nothing_else_is() -> None:
    cards = list(of_page(PAGE, "docs/page"))
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
    with pytest.raises(NotelabError, match=r"How many\?: .* no number in bold") as raised:
        list(of_page(page, "page"))
    assert "768 KiB" in raised.value.hint


def test_a_card_rests_on_what_it_cites_and_else_on_all_that_its_page_cites(
    scratch: Scratch,
) -> None:
    scratch.write("note.md", scratch.read("note.md") + CARDS)
    scratch.lock()
    own, none = cards_of(scratch)
    assert own.evidence and none.evidence and own.evidence != none.evidence
    # Other lines change: what rests on the whole page is shaken, what rests on its own isn't.
    rows = scratch.read("citations.lock").splitlines()
    at = next(number for number, row in enumerate(rows) if "L22-L25" in row)
    rows[at] = re.sub(r'"sha256": "\w{8}', '"sha256": "00000000', rows[at])
    scratch.write("citations.lock", "\n".join(rows))
    now = cards_of(scratch)
    assert now[0].evidence == own.evidence
    assert now[1].evidence != none.evidence


def test_a_page_has_the_same_cards_in_both_languages(scratch: Scratch) -> None:
    scratch.write("note.md", scratch.read("note.md") + CARDS)
    scratch.write("note.es.md", scratch.read("note.es.md") + CARDS)
    scratch.lock()
    english, castilian = cards_of(scratch), cards_of(scratch, "es")
    assert [(card.id, card.evidence) for card in english] == [(c.id, c.evidence) for c in castilian]
    assert {card.page.name for card in castilian} == {"note.es.md"}


@pytest.mark.parametrize("page", WORKBOOK, ids=lambda page: page.name)
def test_the_workbooks_cards_are_named_and_ask_for_the_same_in_both_languages(page: Path) -> None:
    ours = list(of_page(page.read_text("utf-8"), "page"))
    theirs = list(of_page(spanish(page).read_text("utf-8"), "page"))
    assert [card.id for card in ours] == [card.id for card in theirs]
    assert len({card.id for card in ours}) == len(ours)
    assert not [card.id for card in ours if card.id.rpartition("#")[2].isdigit()]
    values = [[card.number and card.number.value for card in cards] for cards in (ours, theirs)]
    assert values[0] == values[1]


def test_there_are_numbers_to_answer_on_theory_and_lab_pages() -> None:
    found = {
        folder: sum(
            card.number is not None
            for page in WORKBOOK
            if page.parent.name == folder
            for card in of_page(page.read_text("utf-8"), "page")
        )
        for folder in ("theory", "labs")
    }
    assert found["theory"] >= 6 and found["labs"] >= 2
