"""Citations on a page of the site: a permalink each, and a card where the text is at hand."""

import re
from html import escape, unescape
from pathlib import Path

from mkdocs.utils import get_relative_url

from sitelab import card
from sitelab.cited import Cited

FOLDER = "assets/citations"
# A code block's content is left alone; so is code that stands in a link already.
_ASIDE = re.compile(r"(<pre\b.*?</pre>|<a\b.*?</a>)", re.DOTALL)
_CODE = re.compile(r"<code>([^<]+)</code>")


def linked(html: str, citations: dict[str, Cited], *, language: str, url: str, site: Path) -> str:
    """Return a page's HTML with its citations alive; writes the cards that it needs.

    Args:
        html: of the page's content.
        citations: what the page cites, by the text of the citation.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        site: the folder that the site is built into.
    """

    def replaced(match: re.Match[str]) -> str:
        cited = citations.get(unescape(match[1]))
        return _link(match[0], cited, language, url, site) if cited else match[0]

    pieces = _ASIDE.split(html)
    return "".join(
        piece if index % 2 else _CODE.sub(replaced, piece) for index, piece in enumerate(pieces)
    )


def _link(code: str, cited: Cited, language: str, url: str, site: Path) -> str:
    if cited.text is None:
        if not cited.permalink:
            return code
        return f'<a class="citation" href="{escape(cited.permalink)}" rel="noopener">{code}</a>'
    name = card.name_of(cited, language)
    target = site / FOLDER / name
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(card.of(cited, language), encoding="utf-8")
    place = escape(get_relative_url(f"{FOLDER}/{name}", url))
    href = escape(cited.permalink) or place
    return f'<a class="citation" href="{href}" rel="noopener" data-card="{place}">{code}</a>'
