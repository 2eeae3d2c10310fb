"""A citation's card: the cited lines, highlighted, with where they stand, as a piece of HTML.

Each card is a file of its own, fetched when a reader points at the citation. The cited text is
untrusted: pygments escapes it, and everything else goes through `escape`.
"""

from functools import lru_cache
from hashlib import sha256
from html import escape

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from sitelab.citations.cited import AROUND, Cited
from sitelab.citations.shown_text import shown_line, shown_text

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


def shown(cited: Cited) -> range:
    """Return the numbers of the lines that a card shows: those cited, and what is around them.

    A long citation is cut after `MOST_LINES`, and nothing below the cut is shown.
    """
    last = min(cited.last + AROUND, len(cited.text or ()))
    if _left_out(cited):
        last = cited.first + MOST_LINES - 1
    return range(max(1, cited.first - AROUND), last + 1)


def _left_out(cited: Cited) -> int:
    """Return how many of the cited lines a card leaves out."""
    return max(0, cited.last - cited.first + 1 - MOST_LINES)


def name_of(cited: Cited, language: str) -> str:
    """Return the file name of a card: short, and new when anything in it changes."""
    facts = (getattr(cited, name) for name in cited.__struct_fields__ if name != "text")
    lines = [(cited.text or ())[number - 1] for number in shown(cited)]
    key = repr((language, *facts, lines))
    return f"{sha256(key.encode()).hexdigest()[:16]}.html"


def lines_of(cited: Cited, language: str) -> str:
    """Return which lines are cited, in words."""
    key = "line" if cited.first == cited.last else "lines"
    return WORDS[language][key].format(cited.first, cited.last)


def of(cited: Cited, language: str) -> str:
    """Return the card's HTML; `cited.text` must be there."""
    words = WORDS[language]
    lines = lines_of(cited, language)
    symbol = f" {words['in']} <code>{_text(cited.symbol)}</code>" if cited.symbol else ""
    release = f" ({_text(cited.release)})" if cited.release else ""
    origin = words["origin"].format(
        source=_text(cited.source), commit=f"<code>{escape(cited.commit[:12])}</code>{release}"
    )
    licence = f", {words['licence'].format(_text(cited.licence))}" if cited.licence else ""
    numbered = "".join(
        _line(number, line, cited=cited.first <= number <= cited.last)
        for number, line in _highlighted(cited).items()
    )
    return (
        f'<p class="citation-place"><b>{_text(cited.path)}</b> · {lines}{symbol}</p>'
        f'<div class="highlight"><pre tabindex="0"><code>{numbered}</code></pre></div>'
        f"{_cut(cited, language)}"
        f'<p class="citation-origin">{origin}{licence}. {_links(cited.permalink, words)}</p>'
    )


def _text(value: str) -> str:
    return escape(shown_text(value))


def _line(number: int, html: str, *, cited: bool) -> str:
    around = "" if cited else " citation-around"
    return f'<span class="citation-line{around}" data-line="{number}">{html}\n</span>'


def _cut(cited: Cited, language: str) -> str:
    """Return how many cited lines are left out, with a link to the source; "" if none are."""
    count, words = _left_out(cited), WORDS[language]
    if not count:
        return ""
    number = f"{count:,}" if language == "en" else f"{count:,}".replace(",", ".")
    sentence = words["cut-one"] if count == 1 else words["cut"].format(number)
    link = f" {_source_link(cited.permalink, words)}" if cited.permalink else ""
    return f'<p class="citation-cut">{sentence}{link}</p>'


def _source_link(permalink: str, words: dict[str, str]) -> str:
    return f'<a href="{escape(permalink)}" rel="noopener">{words["open"]}</a>'


def _links(permalink: str, words: dict[str, str]) -> str:
    """Return the way to the source, and a button that citations.js shows where it can copy."""
    if not permalink:
        return ""
    address = escape(permalink)
    return (
        f"{_source_link(permalink, words)} "
        f'<button type="button" class="citation-copy" hidden data-copy="{address}" '
        f'data-done="{words["copied"]}">{words["copy"]}</button>'
    )


def _highlighted(cited: Cited) -> dict[int, str]:
    """Return the lines that a card shows as HTML, by number.

    They are lexed with all of their statements: the first or the last may stand within a string.
    """
    assert cited.text is not None
    begin, end = cited.within
    if _left_out(cited):
        end = shown(cited)[-1]
    text = "\n".join(map(shown_line, cited.text[begin - 1 : end]))
    lines = _lexed(cited.path, text)
    return {number: lines[number - begin] for number in shown(cited)}


@lru_cache(maxsize=4096)  # either language shows the same lines, and so does a page saved again
def _lexed(path: str, text: str) -> list[str]:
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    html: str = highlight(text, lexer, HtmlFormatter(nowrap=True))
    lines = html.split("\n")
    return lines if len(lines) > text.count("\n") else escape(text).split("\n")
