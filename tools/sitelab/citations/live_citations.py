"""Citations on a page of the site: a permalink each, and a card where the text is at hand.

On the screen a citation names its file and its lines, `layers.py:134–143`; the whole path stands in
its title, in its card and on paper.
"""

from hashlib import sha256
from html import escape
from pathlib import Path

from markupsafe import Markup
from mkdocs.utils import get_relative_url

from sitelab.citations import card
from sitelab.citations.cited import Cited
from sitelab.citations.shown_text import shown_text
from sitelab.pages.tree import Element

FOLDER = "assets/citations"
_LEFT = ("pre", "a")  # what a block of code holds is left alone; so is what stands in a link


def link_citations(
    page: Element, citations: dict[str, Cited], *, language: str, url: str, mark: str
) -> dict[str, Cited]:
    """Bring a page's citations to life; return the cards that it needs, by file name.

    Below a paragraph of the class `with-card` the card of its last citation stands open.

    Args:
        page: the page's content.
        citations: what the page cites, by the text of the citation.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        mark: what `mark_of` returns for the page: its links and cards carry it.
    """
    cards: dict[str, Cited] = {}

    def link(element: Element) -> list[Element | str] | None:
        if element.tag in _LEFT:
            return [element]
        if cited := _citation(element, citations):
            place = ""
            if cited.text is not None:
                name = card.name_of(cited, language)
                cards[name] = cited
                place = get_relative_url(f"{FOLDER}/{name}", url)
            return [Markup(_link(cited, language, place, mark))]  # noqa: S704  (escaped)
        if element.tag != "p" or element.classes != ["with-card"]:
            return None
        last = [c for below in element.below() if (c := _citation(below, citations))][-1:]
        element.replace(link)
        return [element, *(_open_card(c, language, mark) for c in last if c.text is not None)]

    page.replace(link)
    return cards


def write_cards(cards: dict[str, Cited], language: str, site: Path) -> None:
    """Write the cards that aren't there yet into the folder that the site is built into."""
    for name, cited in cards.items():
        file = site / FOLDER / name
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(card.of(cited, language), encoding="utf-8")


def mark_of(html: str) -> str:
    """Return what a page's own cards carry: a digest of its content, which can't name itself."""
    return sha256(html.encode()).hexdigest()[:32]


def hide_forged_cards(output: str, mark: str) -> str:
    """Return a whole page whose style hides each card that doesn't carry the page's mark."""
    rule = f'.citation-card:not([data-mark="{mark}"]){{display:none!important}}'
    return output.replace("</head>", f"<style>{rule}</style></head>", 1)


def _citation(element: Element, citations: dict[str, Cited]) -> Cited | None:
    """Return what an element cites: code font that holds a citation's text and nothing else."""
    if element.tag != "code" or element.attributes:
        return None
    return citations.get(element.plain_text() or "")


def _open_card(cited: Cited, language: str, mark: str) -> Markup:
    inner = card.of(cited, language)
    shown = f'<div class="citation-card citation-card--open" data-mark="{mark}">{inner}</div>'
    return Markup(shown)  # noqa: S704  (escaped by card.of)


def _link(cited: Cited, language: str, place: str, mark: str) -> str:
    """Return a citation as a link; `place` is its card's address, "" without a card."""
    name = _name(cited)
    title = f'title="{escape(shown_text(cited.path))}, {card.lines_of(cited, language)}"'
    if not (place or cited.permalink):
        return f"<code {title}>{name}</code>"
    href = escape(cited.permalink or place)
    more = f' data-card="{escape(place)}" data-mark="{mark}"' if place else ""
    return f'<a class="citation" href="{href}" rel="noopener" {title}{more}><code>{name}</code></a>'


def _name(cited: Cited) -> str:
    """Return a citation as the site writes it; its folders are shown on paper alone."""
    *folders, file = shown_text(cited.path).split("/")
    if file == "__init__.py" and folders:  # says nothing without its package
        file = f"{folders.pop()}/{file}"
    lines = f"{cited.first}" + (f"–{cited.last}" if cited.last != cited.first else "")
    above = "".join(f"{folder}/" for folder in folders)
    hidden = f'<span class="citation-folders">{escape(above)}</span>' if above else ""
    return f"{hidden}{escape(file)}:{lines}"
