"""A citation's card: the cited lines, highlighted, with where they stand, as a piece of HTML.

Each card is a file of its own, fetched when a reader points at the citation. The cited text is
untrusted: pygments escapes it, and everything else goes through `escape`.
"""

from hashlib import sha256
from html import escape

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from sitelab.citations.cited import Cited

WORDS = {
    "en": {
        "line": "line {0}",
        "lines": "lines {0}–{1}",
        "in": "in",
        "origin": "Cited from {source} at commit {commit}",
        "licence": "licence {0}",
        "open": "Open at its source",
    },
    "es": {
        "line": "línea {0}",
        "lines": "líneas {0}–{1}",
        "in": "en",
        "origin": "Citado de {source}, commit {commit}",
        "licence": "licencia {0}",
        "open": "Abrir en su origen",
    },
}


def name_of(cited: Cited, language: str) -> str:
    """Return the file name of a card: short, and new when anything in it changes."""
    shown = (
        language,
        *(getattr(cited, name) for name in cited.__struct_fields__ if name != "text"),
    )
    lines = (cited.text or ())[cited.first - 1 : cited.last]
    key = repr((shown, lines))
    return f"{sha256(key.encode()).hexdigest()[:16]}.html"


class Highlighted:
    """The lines of cited files as HTML, each file highlighted once."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str, str], list[str]] = {}

    def lines(self, cited: Cited) -> list[str]:
        """Return the cited lines; `cited.text` must be there.

        A file is lexed from its beginning, for a slice may begin within a string.
        """
        assert cited.text is not None
        key = (cited.source, cited.commit, cited.path)  # a path at a commit is one text
        if key not in self._files:
            self._files[key] = _highlighted(cited.path, cited.text)
        return self._files[key][cited.first - 1 : cited.last]


def of(cited: Cited, language: str, highlighted: Highlighted) -> str:
    """Return the card's HTML; `cited.text` must be there."""
    words = WORDS[language]
    one = cited.first == cited.last
    lines = words["line" if one else "lines"].format(cited.first, cited.last)
    symbol = f" {words['in']} <code>{escape(cited.symbol)}</code>" if cited.symbol else ""
    release = f" ({escape(cited.release)})" if cited.release else ""
    origin = words["origin"].format(
        source=escape(cited.source), commit=f"<code>{escape(cited.commit[:12])}</code>{release}"
    )
    licence = f", {words['licence'].format(escape(cited.licence))}" if cited.licence else ""
    link = f'<a href="{escape(cited.permalink)}" rel="noopener">{words["open"]}</a>'
    link = link if cited.permalink else ""
    shown = highlighted.lines(cited)
    numbered = "".join(
        f'<span class="citation-line" data-line="{number}">{line}\n</span>'
        for number, line in enumerate(shown, cited.first)
    )
    return (
        f'<p class="citation-place"><b>{escape(cited.path)}</b> · {lines}{symbol}</p>'
        f'<div class="highlight"><pre tabindex="0"><code>{numbered}</code></pre></div>'
        f'<p class="citation-origin">{origin}{licence}. {link}</p>'
    )


def _highlighted(path: str, text: tuple[str, ...]) -> list[str]:
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    html: str = highlight("\n".join(text), lexer, HtmlFormatter(nowrap=True))
    lines = html.split("\n")
    return lines if len(lines) >= len(text) else [escape(line) for line in text]
