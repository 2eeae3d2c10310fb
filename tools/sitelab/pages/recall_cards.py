"""Gives each recall card on a page its name, its number and a digest of its evidence.

`docs/assets/javascripts/recall.js` grades and remembers cards by these attributes. Without scripts
a card only opens and closes.

The page docs/cards.md shows the cards of all pages. It is filled when all pages are built, so that
a card has the same formulas and links there as on its own page.
"""

import posixpath
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from notelab.book.discovery import labs_below
from notelab.book.workbook import CheckSession
from notelab.recall.cards import Card, collect_cards
from sitelab.pages.rebuild_cache import PageCache
from sitelab.pages.tree import Element, parse

PAGES = {"docs/cards.md", "docs/cards.es.md"}
_PLACE = '<section id="recall-sitting"></section>'


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


class TodaysCards:
    """Collects the cards of all pages of a language, and writes them into the page of cards."""

    def __init__(self) -> None:
        self._contents: dict[str, dict[str, tuple[str, str]]] = {}  # titles and HTML of pages
        self._pages: dict[str, Page] = {}
        self._rendered: PageCache[str] = PageCache()

    def add(self, html: str, page: Page, language: str) -> str:
        """Take a page's cards from its content; return the content.

        In the page of cards, make a place for the cards before its first section.
        """
        if page.file.src_uri in PAGES:
            self._pages[language] = page
            page.meta["cards"] = True
            before, heading, after = html.partition("<h2")
            return f"{before}{_PLACE}{heading}{after}"
        contents = self._contents.setdefault(language, {})
        contents.pop(page.url, None)
        if "data-recall" in html:
            contents[page.url] = str(page.title), html
        return html

    def fill(self) -> None:
        """Write the cards into each built page of cards that lacks them."""
        for language, page in self._pages.items():
            file = Path(page.file.abs_dest_path)
            text = file.read_text("utf-8") if file.is_file() else ""
            if _PLACE in text:
                items = "".join(
                    self._rendered.get_or_make(
                        url, (*content, page.meta["mark"]), partial(_render, url, *content, page)
                    )
                    for url, content in self._contents[language].items()
                )
                filled = _PLACE.replace("></", f">{items}</")
                file.write_text(text.replace(_PLACE, filled), "utf-8")


def _render(url: str, title: str, html: str, page: Page) -> str:
    """Return a page's cards for the page of cards, each below a link to where it comes from."""
    cards = [e for e in parse(html).descendants() if "data-recall" in e.attributes]
    link = f'<a href="{escape(get_relative_url(url, page.url))}">{escape(title)}</a>'
    for card in cards:
        for element in card.descendants():
            for name in ("href", "src", "data-card"):
                if name in element.attributes:
                    element.attributes[name] = _rebase(element.attributes[name], url, page.url)
            if "data-mark" in element.attributes:  # the site's own: no page can write it
                element.attributes["data-mark"] = page.meta["mark"]
    items = (f'<p class="recall-from">{link}</p>{card.html()}' for card in cards)
    return "".join(f'<div class="recall-item">{item}</div>' for item in items)


def _rebase(address: str, url: str, other: str) -> str:
    """Return an address that is relative to one page of the site as another page must give it.

    >>> _rebase("../02/#f", "theory/01/", "es/cards/"), _rebase("#f", "theory/01/", "cards/")
    ('../../theory/02/#f', '../theory/01/#f')
    """
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or address.startswith("/"):
        return address
    path = posixpath.normpath(posixpath.join(url, parts.path)) if parts.path else url
    slash = "/" if parts.path.endswith("/") else ""
    return parts._replace(path=get_relative_url(path + slash, other)).geturl()
