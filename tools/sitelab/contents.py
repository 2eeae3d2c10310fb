"""A page's content, from the HTML that Markdown made of it to what the site shows.

The HTML is cleaned and parsed once; then each part of the site changes the tree in turn.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from notelab.recall.cards import Card
from sitelab.citations.cited import Cited
from sitelab.citations.live_citations import link_citations, mark_of
from sitelab.drawing.formulas import draw_formulas
from sitelab.drawing.inline_figures import FOLDER, embed_pictures
from sitelab.drawing.long_cells import mark_long_cells
from sitelab.figures.makers import MAKERS
from sitelab.figures.shown import embed_figures
from sitelab.katex import Formulas
from sitelab.pages.allowed_html import clean
from sitelab.pages.gate import hide_answers_from_search
from sitelab.pages.recall_cards import mark_cards
from sitelab.pages.tree import parse
from sitelab.pages.whole_numbers import keep_numbers_whole
from sitelab.pages.whole_options import keep_options_whole
from sitelab.theme.search_index import hide_from_search


class Source(NamedTuple):
    """What a page's content is made of.

    Attributes:
        html: what Markdown made of the page; nothing in it is trusted.
        url: of the page, relative to the site's root.
        language: of the page: "en" or "es".
        citations: what the page cites, by the text of the citation.
        cards: its recall cards, in order.
        judged: whether the bench writes the page, so that it may mark verdicts and measured rows.
    """

    html: str
    url: str
    language: str
    citations: dict[str, Cited]
    cards: Sequence[Card]
    judged: bool


class Fault(NamedTuple):
    """What a page asks for and can't be shown: the words of its source that ask, and why."""

    words: str
    why: str

    def at(self, file: Path, root: Path) -> str:
        """Return the fault as `path:line: why`, the path below the repository `root`."""
        before, found, _ = file.read_text("utf-8", "replace").partition(self.words)
        line = before.count("\n") + 1 if found else 1
        return f"{file.relative_to(root)}:{line}: {self.why}"


class Content(NamedTuple):
    """What the site shows of a page.

    Attributes:
        html: its content.
        mark: what its own cards carry (`live_citations.mark_of`).
        cards: those that it needs, by file name.
        faults: what it asks for and can't be shown.
    """

    html: str
    mark: str
    cards: dict[str, Cited]
    faults: list[Fault]


class Contents:
    """Makes pages' contents, and remembers each until what it is made of changes."""

    def __init__(self) -> None:
        self._formulas = Formulas()
        self._known: dict[str, tuple[Source, Content]] = {}

    def of(self, source: Source, root: Path) -> Content:
        """Return a page's content; `root` is the repository's folder."""
        known, content = self._known.get(source.url, (None, None))
        embeds = "figure" in source.html  # and then it is made of files too
        if content is None or known != source or embeds:
            content = self._make(source, root)
            self._known[source.url] = (source, content)
        return content

    def _make(self, source: Source, root: Path) -> Content:
        language, url = source.language, source.url
        page, mark = parse(clean(source.html, judged=source.judged)), mark_of(source.html)
        hide_from_search(page)
        hide_answers_from_search(page)
        faults = [
            Fault(f"{FOLDER}/{name}", f"docs/{FOLDER} has no figure {name}.svg in {language}")
            for name in embed_pictures(page, root / "docs", language)
        ]
        faults += [
            Fault(f"figure-{name}", f"there is no figure {name!r}; there are {', '.join(MAKERS)}")
            for name in embed_figures(page, MAKERS, language=language, url=url, root=root)
        ]
        mark_long_cells(page)
        faults += [
            Fault(tex, f"a formula that can't be drawn: {tex}: {error}")
            for tex, error in draw_formulas(page, self._formulas.draw, language=language)
        ]
        keep_numbers_whole(page)
        mark_cards(page, source.cards)
        cards = link_citations(page, source.citations, language=language, url=url, mark=mark)
        keep_options_whole(page)
        return Content(page.html(), mark, cards, faults)
