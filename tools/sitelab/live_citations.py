"""Turns a page's citations into permalinks, each with a card if the cited text is in the store.

On the screen a citation in a sentence is a chip of its lines, `134–143`; in a table it shows its
file too. The whole path is in its title, in its card and on paper.

Each card is an HTML file of its own, which the page fetches when a reader points at the citation.
The cited text is untrusted: pygments escapes it, and the template escapes everything else.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from html import escape
from pathlib import Path

from markupsafe import Markup
from mkdocs.utils import get_relative_url
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from sitelab.pages.tree import Element
from sitelab.rendering import load_words, make_line_visible, make_visible, render
from sitelab.resolved_citations import CONTEXT, ResolvedCitation

MOST_LINES = 60  # cited lines that a card shows; the longest citation of our notes has 35


def select_line_numbers(citation: ResolvedCitation) -> range:
    """Return the numbers of the lines that a card shows: the cited lines and their context.

    A long citation is cut after `MOST_LINES` lines, and no context below the cut is shown.
    """
    last = min(citation.last + CONTEXT, len(citation.text or ()))
    if _count_omitted(citation):
        last = citation.first + MOST_LINES - 1
    return range(max(1, citation.first - CONTEXT), last + 1)


def _count_omitted(citation: ResolvedCitation) -> int:
    """Return how many of the cited lines a card leaves out."""
    return max(0, citation.last - citation.first + 1 - MOST_LINES)


def make_file_name(citation: ResolvedCitation, language: str) -> str:
    """Return the file name of a card, which changes whenever the card's content changes."""
    facts = (getattr(citation, name) for name in citation.__struct_fields__ if name != "text")
    lines = [(citation.text or ())[number - 1] for number in select_line_numbers(citation)]
    key = repr((language, *facts, lines))
    return f"{sha256(key.encode()).hexdigest()[:16]}.html"


def describe_lines(citation: ResolvedCitation, language: str) -> str:
    """Return which lines are cited, in words."""
    key = "line" if citation.first == citation.last else "lines"
    return load_words(language)["citation"][key].format(citation.first, citation.last)


def render_card(citation: ResolvedCitation, language: str) -> str:
    """Return the card's HTML; `citation.text` must not be None."""
    words, omitted = load_words(language)["citation"], _count_omitted(citation)
    number = f"{omitted:,}" if language == "en" else f"{omitted:,}".replace(",", ".")
    cut = words["cut-one"] if omitted == 1 else words["cut"].format(number) if omitted else ""
    place, lines = describe_lines(citation, language), _highlight_lines(citation)
    return render("card", words, citation=citation, place=place, lines=lines, cut=cut)


def _highlight_lines(citation: ResolvedCitation) -> dict[int, str]:
    """Return the HTML of each line that a card shows, by line number.

    Whole statements are lexed, because the first or the last line may be inside a string.
    """
    assert citation.text is not None
    begin, end = citation.statements
    if _count_omitted(citation):
        end = select_line_numbers(citation)[-1]
    text = "\n".join(map(make_line_visible, citation.text[begin - 1 : end]))
    lines = _highlight(citation.path, text)
    return {number: lines[number - begin] for number in select_line_numbers(citation)}


@lru_cache(maxsize=4096)  # both languages show the same lines, and so does a page saved again
def _highlight(path: str, text: str) -> list[str]:
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    html: str = highlight(text, lexer, HtmlFormatter(nowrap=True))
    lines = html.split("\n")
    return lines if len(lines) > text.count("\n") else escape(text).split("\n")


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
                name = make_file_name(citation, language)
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
                rendered[name] = render_card(citation, language)
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
    inner = render_card(citation, language)
    html = f'<div class="citation-card citation-card--open" data-mark="{mark}">{inner}</div>'
    return Markup(html)  # noqa: S704  (escaped by render_card)


def _render_link(citation: ResolvedCitation, language: str, card_url: str, mark: str) -> str:
    """Return a citation as a link; `card_url` is "" for a citation without a card."""
    name = _render_name(citation)
    lines = describe_lines(citation, language)
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
