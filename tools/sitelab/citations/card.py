"""Renders a citation's card: the cited lines, highlighted, with their file and their source.

Each card is an HTML file of its own, which the page fetches when a reader points at the citation.
The cited text is untrusted: pygments escapes it, and the template escapes everything else.
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
from sitelab.rendering import load_words, make_line_visible, render

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
