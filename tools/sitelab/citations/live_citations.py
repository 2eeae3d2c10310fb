"""Citations on a page of the site: a permalink each, and a card where the text is at hand."""

import re
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path

from mkdocs.utils import get_relative_url

from sitelab.citations import card
from sitelab.citations.card import Highlighted
from sitelab.citations.cited import Cited

FOLDER = "assets/citations"
# A code block's content is left alone; so is code that stands in a link already.
_ASIDE = re.compile(r"(<pre\b.*?</pre>|<a\b.*?</a>)", re.DOTALL)
_CODE = re.compile(r"<code>([^<]+)</code>")


def linked(
    html: str,
    citations: dict[str, Cited],
    *,
    language: str,
    url: str,
    site: Path,
    highlighted: Highlighted,
) -> str:
    """Return a page's HTML with its citations alive; writes the cards that it needs.

    Args:
        html: of the page's content.
        citations: what the page cites, by the text of the citation.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        site: the folder that the site is built into.
        highlighted: the cited files' lines as HTML, kept from page to page.
    """

    def card_of(cited: Cited) -> str:
        name = card.name_of(cited, language)
        target = site / FOLDER / name
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(card.of(cited, language, highlighted), encoding="utf-8")
        return escape(get_relative_url(f"{FOLDER}/{name}", url))

    def replaced(match: re.Match[str]) -> str:
        cited = citations.get(unescape(match[1]))
        return _link(match[0], cited, card_of) if cited else match[0]

    pieces = _ASIDE.split(html)
    return "".join(
        piece if index % 2 else _CODE.sub(replaced, piece) for index, piece in enumerate(pieces)
    )


def _link(code: str, cited: Cited, card_of: Callable[[Cited], str]) -> str:
    if cited.text is None:
        if not cited.permalink:
            return code
        return f'<a class="citation" href="{escape(cited.permalink)}" rel="noopener">{code}</a>'
    place = card_of(cited)
    href = escape(cited.permalink) or place
    return f'<a class="citation" href="{href}" rel="noopener" data-card="{place}">{code}</a>'
