"""Citations on a page of the site: a permalink each, and a card where the text is at hand.

On the screen a citation names its file and its lines, `layers.py:134–143`; the whole path stands in
its title, in its card and on paper.
"""

import re
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path

from mkdocs.utils import get_relative_url

from sitelab.citations import card
from sitelab.citations.cited import Cited

FOLDER = "assets/citations"
# A code block's content is left alone; so is code that stands in a link already.
_ASIDE = re.compile(r"(<pre\b.*?</pre>|<a\b.*?</a>)", re.DOTALL)
_CODE = re.compile(r"<code>([^<]+)</code>")
# A paragraph whose card stands open below it: the last one that it cites.
_SHOWN = re.compile(r'<p class="with-card">.*?</p>', re.DOTALL)


def linked(html: str, citations: dict[str, Cited], *, language: str, url: str, site: Path) -> str:
    """Return a page's HTML with its citations alive; writes the cards that it needs.

    Args:
        html: of the page's content.
        citations: what the page cites, by the text of the citation.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        site: the folder that the site is built into.
    """

    def card_of(cited: Cited) -> str:
        name = card.name_of(cited, language)
        target = site / FOLDER / name
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(card.of(cited, language), encoding="utf-8")
        return escape(get_relative_url(f"{FOLDER}/{name}", url))

    def replaced(match: re.Match[str]) -> str:
        cited = citations.get(unescape(match[1]))
        return _link(cited, language, card_of) if cited else match[0]

    def opened(match: re.Match[str]) -> str:
        told = [c for text in _CODE.findall(match[0]) if (c := citations.get(unescape(text)))]
        if not told or told[-1].text is None:
            return match[0]
        inner = card.of(told[-1], language)
        return f'{match[0]}<div class="citation-card citation-card--open">{inner}</div>'

    pieces = _ASIDE.split(_SHOWN.sub(opened, html))
    return "".join(
        piece if index % 2 else _CODE.sub(replaced, piece) for index, piece in enumerate(pieces)
    )


def _link(cited: Cited, language: str, card_of: Callable[[Cited], str]) -> str:
    name = _name(cited)
    title = f'title="{escape(cited.path)}, {card.lines_of(cited, language)}"'
    if cited.text is None:
        if not cited.permalink:
            return f"<code {title}>{name}</code>"
        href, more = escape(cited.permalink), ""
    else:
        place = card_of(cited)
        href, more = escape(cited.permalink) or place, f' data-card="{place}"'
    return f'<a class="citation" href="{href}" rel="noopener" {title}{more}><code>{name}</code></a>'


def _name(cited: Cited) -> str:
    """Return a citation as the site writes it; its folders are shown on paper alone."""
    *folders, file = cited.path.split("/")
    if file == "__init__.py" and folders:  # says nothing without its package
        file = f"{folders.pop()}/{file}"
    lines = f"{cited.first}" + (f"–{cited.last}" if cited.last != cited.first else "")
    above = "".join(f"{folder}/" for folder in folders)
    hidden = f'<span class="citation-folders">{escape(above)}</span>' if above else ""
    return f"{hidden}{escape(file)}:{lines}"
