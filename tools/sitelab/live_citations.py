"""Turns a page's citations into permalinks, each with a card if the cited text is in the store.

On the screen a citation in a sentence is a chip of its lines, `134–143`; in a table it shows its
file too. The whole path is in its title, in its card and on paper.
"""

from collections.abc import Iterable
from hashlib import sha256
from html import escape
from pathlib import Path

from markupsafe import Markup
from mkdocs.utils import get_relative_url

from sitelab.citations import card
from sitelab.citations.resolved import ResolvedCitation
from sitelab.pages.tree import Element
from sitelab.rendering import load_words, make_visible

FOLDER = "assets/citations"
_SKIPPED_TAGS = ("pre", "a")  # blocks of code and links are not changed


def link_citations(
    page: Element, citations: dict[str, ResolvedCitation], *, language: str, url: str, mark: str
) -> dict[str, ResolvedCitation]:
    """Replace a page's citations by links; return the cards that the page needs, by file name.

    Below a paragraph of the class `with-card` the card of its last citation is open.

    Args:
        page: the page's content.
        citations: what the page cites, by the text of the citation.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        mark: what `make_mark` returns for the page; its links and cards carry it.
    """
    cards: dict[str, ResolvedCitation] = {}

    def link(element: Element) -> list[Element | str] | None:
        if element.tag in _SKIPPED_TAGS:
            return [element]
        if citation := _find_citation(element, citations):
            card_url = ""
            if citation.text is not None:
                name = card.make_file_name(citation, language)
                cards[name] = citation
                card_url = get_relative_url(f"{FOLDER}/{name}", url)
            html = _render_link(citation, language, card_url, mark)
            return [Markup(html)]  # noqa: S704  (escaped)
        if element.tag != "p" or element.classes != ["with-card"]:
            return None
        citations_below = [_find_citation(child, citations) for child in element.descendants()]
        last = [citation for citation in citations_below if citation][-1:]
        element.replace(link)
        opened = [c for c in last if c.text is not None]
        return [element, *(_render_open_card(c, language, mark) for c in opened)]

    page.replace(link)
    return cards


def write_cards(
    cards: dict[str, ResolvedCitation], language: str, site: Path, rendered: dict[str, str]
) -> None:
    """Write the cards that don't exist yet into the folder that the site is built into.

    `rendered` has the cards of earlier builds, by file name; this call uses it and adds to it.
    """
    for name, citation in cards.items():
        file = site / FOLDER / name
        if not file.is_file():
            if name not in rendered:
                rendered[name] = card.render_card(citation, language)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(rendered[name], encoding="utf-8")


def describe_sources(citations: Iterable[ResolvedCitation], language: str) -> str:
    """Return the line below a note's title: the files that it reads, by source and pin."""
    files: dict[tuple[str, str], dict[str, None]] = {}
    for each in citations:
        pin = each.source, each.release or each.commit[:12]
        files.setdefault(pin, {})[each.path.rpartition("/")[2]] = None
    text = load_words(language)["note"]["reads"]
    sentences = (
        text.format(files=", ".join(names), source=source, release=release)
        for (source, release), names in files.items()
    )
    return f'<p class="goal">{escape(make_visible(". ".join(sentences)))}.</p>'


def make_mark(html: str) -> str:
    """Return a digest of the page's content, which a page can't contain, as its cards' mark."""
    return sha256(html.encode()).hexdigest()[:32]


def _find_citation(
    element: Element, citations: dict[str, ResolvedCitation]
) -> ResolvedCitation | None:
    """Return the citation in an element: code font with a citation's text and nothing else."""
    if element.tag != "code" or element.attributes:
        return None
    return citations.get(element.plain_text() or "")


def _render_open_card(citation: ResolvedCitation, language: str, mark: str) -> Markup:
    inner = card.render_card(citation, language)
    html = f'<div class="citation-card citation-card--open" data-mark="{mark}">{inner}</div>'
    return Markup(html)  # noqa: S704  (escaped by render_card)


def _render_link(citation: ResolvedCitation, language: str, card_url: str, mark: str) -> str:
    """Return a citation as a link; `card_url` is "" for a citation without a card."""
    name = _render_name(citation)
    lines = card.describe_lines(citation, language)
    title = f'title="{escape(make_visible(citation.path))}, {lines}"'
    if not (card_url or citation.permalink):
        return f"<code {title}>{name}</code>"
    href = escape(citation.permalink or card_url)
    more = f' data-card="{escape(card_url)}" data-mark="{mark}"' if card_url else ""
    return f'<a class="citation" href="{href}" rel="noopener" {title}{more}><code>{name}</code></a>'


def _render_name(citation: ResolvedCitation) -> str:
    """Return a citation as the site writes it; a style shows its file or its folders."""
    *folders, file = make_visible(citation.path).split("/")
    if file == "__init__.py" and folders:  # says nothing without its package
        file = f"{folders.pop()}/{file}"
    lines = f"{citation.first}" + (f"–{citation.last}" if citation.last != citation.first else "")
    above = "".join(f"{folder}/" for folder in folders)
    hidden = f'<span class="citation-folders">{escape(above)}</span>' if above else ""
    return f'<span class="citation-file">{hidden}{escape(file)}:</span>{lines}'
