"""Recall cards on a page of the site: each told its name, its number and what it rests on.

`docs/assets/javascripts/recall.js` grades and remembers by these; without it a card just opens.
"""

from collections.abc import Sequence
from pathlib import Path

from notelab.book.finding_labs import labs_below
from notelab.book.workbook import Bench
from notelab.recall.cards import Card, collect_cards
from sitelab.pages.tree import Element


def by_page(root: Path, languages: Sequence[str], bench: Bench) -> dict[Path, list[Card]]:
    """Return the cards of each page that a lab below `root` proves.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read, or a card can't.
    """
    found: dict[Path, list[Card]] = {}
    for language in languages:
        for card in collect_cards(dict.fromkeys(labs_below(root)), language, bench):
            found.setdefault(card.page, []).append(card)
    return found


def mark_cards(page: Element, cards: Sequence[Card]) -> None:
    """Give each card of a page its name and evidence; none where their numbers differ."""
    found = [e for e in page.below() if e.tag == "details" and e.classes[:1] == ["question"]]
    if len(found) != len(cards):
        return
    for element, card in zip(found, cards, strict=True):
        facts = {"data-recall": card.id, "data-evidence": card.evidence}
        if card.number:
            facts |= {"data-value": str(card.number.value), "data-unit": card.number.unit}
        element.attributes = facts | element.attributes
