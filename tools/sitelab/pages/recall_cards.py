"""Recall cards on a page of the site: each told its name, its number and what it rests on.

`docs/assets/javascripts/recall.js` grades and remembers by these; without it a card just opens.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from notelab.book.finding_labs import labs_below
from notelab.book.workbook import Bench
from notelab.recall.cards import Card, of_labs

_CARD = re.compile(r'<details class="question[ "]')


def by_page(root: Path, languages: Sequence[str], bench: Bench) -> dict[Path, list[Card]]:
    """Return the cards of each page that a lab below `root` proves.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read, or a card can't.
    """
    found: dict[Path, list[Card]] = {}
    for language in languages:
        for card in of_labs(dict.fromkeys(labs_below(root)), language, bench):
            found.setdefault(card.page, []).append(card)
    return found


def told(html: str, cards: Sequence[Card]) -> str:
    """Return a page's HTML, its cards told what they are; as it was where there are others."""
    if len(_CARD.findall(html)) != len(cards):
        return html
    each = iter(cards)
    return _CARD.sub(lambda match: match[0].replace("<details", _opened(next(each))), html)


def _opened(card: Card) -> str:
    said = {"recall": card.id, "evidence": card.evidence}
    if card.number:
        said |= {"value": str(card.number.value), "unit": card.number.unit}
    return "<details" + "".join(f' data-{key}="{escape(value)}"' for key, value in said.items())
