"""Renders a citation's card: the cited lines, highlighted, with their file and their source.

Each card is an HTML file of its own, which the page fetches when a reader points at the citation.
The cited text is untrusted: pygments escapes it, and everything else goes through `escape`.
"""

from functools import lru_cache
from hashlib import sha256
from html import escape

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from sitelab.citations.resolved import CONTEXT, ResolvedCitation
from sitelab.citations.visible_text import make_line_visible, make_visible

MOST_LINES = 60  # cited lines that a card shows; the longest citation of our notes has 35
WORDS = {
    "en": {
        "line": "line {0}",
        "lines": "lines {0}–{1}",
        "in": "in",
        "cut": "{0} more cited lines are left out.",
        "cut-one": "1 more cited line is left out.",
        "origin": "Cited from {source} at commit {commit}",
        "licence": "licence {0}",
        "open": "Open at its source",
        "copy": "Copy link",
        "copied": "Copied",
    },
    "es": {
        "line": "línea {0}",
        "lines": "líneas {0}–{1}",
        "in": "en",
        "cut": "Se omiten otras {0} líneas citadas.",
        "cut-one": "Se omite otra línea citada.",
        "origin": "Citado de {source}, commit {commit}",
        "licence": "licencia {0}",
        "open": "Abrir en su origen",
        "copy": "Copiar enlace",
        "copied": "Copiado",
    },
}


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
    return WORDS[language][key].format(citation.first, citation.last)


def render_card(citation: ResolvedCitation, language: str) -> str:
    """Return the card's HTML; `citation.text` must not be None."""
    words = WORDS[language]
    lines = describe_lines(citation, language)
    links = _render_links(citation.permalink, words)
    symbol = f" {words['in']} <code>{_escape(citation.symbol)}</code>" if citation.symbol else ""
    release = f" ({_escape(citation.release)})" if citation.release else ""
    origin = words["origin"].format(
        source=_escape(citation.source),
        commit=f"<code>{escape(citation.commit[:12])}</code>{release}",
    )
    licence = f", {words['licence'].format(_escape(citation.licence))}" if citation.licence else ""
    rendered_lines = "".join(
        _render_line(number, line, is_cited=citation.first <= number <= citation.last)
        for number, line in _highlight_lines(citation).items()
    )
    return (
        f'<p class="citation-place"><b>{_escape(citation.path)}</b> · {lines}{symbol}</p>'
        f'<div class="highlight"><pre tabindex="0"><code>{rendered_lines}</code></pre></div>'
        f"{_render_cut(citation, language)}"
        f'<p class="citation-origin">{origin}{licence}. {links}</p>'
    )


def _escape(value: str) -> str:
    return escape(make_visible(value))


def _render_line(number: int, html: str, *, is_cited: bool) -> str:
    around = "" if is_cited else " citation-around"
    return f'<span class="citation-line{around}" data-line="{number}">{html}\n</span>'


def _render_cut(citation: ResolvedCitation, language: str) -> str:
    """Return a line that counts the omitted lines and links the source, "" if none is omitted."""
    count, words = _count_omitted(citation), WORDS[language]
    if not count:
        return ""
    number = f"{count:,}" if language == "en" else f"{count:,}".replace(",", ".")
    sentence = words["cut-one"] if count == 1 else words["cut"].format(number)
    link = f" {_render_source_link(citation.permalink, words)}" if citation.permalink else ""
    return f'<p class="citation-cut">{sentence}{link}</p>'


def _render_source_link(permalink: str, words: dict[str, str]) -> str:
    return f'<a href="{escape(permalink)}" rel="noopener">{words["open"]}</a>'


def _render_links(permalink: str, words: dict[str, str]) -> str:
    """Return a link to the source and a button, which citations.js shows if it can copy."""
    if not permalink:
        return ""
    address = escape(permalink)
    return (
        f"{_render_source_link(permalink, words)} "
        f'<button type="button" class="citation-copy" hidden data-copy="{address}" '
        f'data-done="{words["copied"]}">{words["copy"]}</button>'
    )


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
