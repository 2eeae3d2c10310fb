"""Gives each recall card on a page its name, its number and a digest of its evidence.

`docs/assets/javascripts/recall.js` grades and remembers cards by these attributes. Without scripts
a card only opens and closes.
"""

from collections.abc import Sequence
from pathlib import Path

from notelab.book.discovery import labs_below
from notelab.book.workbook import CheckSession
from notelab.recall.cards import Card, collect_cards
from sitelab.pages.tree import Element


def find_cards(
    root: Path, languages: Sequence[str], session: CheckSession
) -> dict[Path, list[Card]]:
    """Return the cards of each page that a lab below `root` proves.

    Raises:
        NotelabError: a lab.toml, a lock or a card can't be read.
    """
    by_page: dict[Path, list[Card]] = {}
    for language in languages:
        for card in collect_cards(dict.fromkeys(labs_below(root)), language, session):
            by_page.setdefault(card.page, []).append(card)
    return by_page


def mark_cards(page: Element, cards: Sequence[Card]) -> None:
    """Add name and evidence to each card of a page, unless the page has another number of them."""
    elements = [
        e for e in page.descendants() if e.tag == "details" and e.classes[:1] == ["question"]
    ]
    if len(elements) != len(cards):
        return
    for element, card in zip(elements, cards, strict=True):
        facts = {"data-recall": card.id, "data-evidence": card.evidence}
        if card.number:
            facts |= {"data-value": str(card.number.value), "data-unit": card.number.unit}
        element.attributes = facts | element.attributes
