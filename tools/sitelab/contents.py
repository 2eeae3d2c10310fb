"""Makes a page's content: from the HTML that Markdown made to the HTML that the site shows.

The HTML is cleaned and parsed once. Then each pass of `PASSES` changes the tree in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from notelab.recall.cards import Card
from sitelab.drawing.diagrams import embed_drawings
from sitelab.drawing.formulas import draw_formulas, set_letters
from sitelab.drawing.svg import FOLDER, embed_pictures, offer_narrow_plots
from sitelab.figures import MAKERS
from sitelab.figures.embed import embed_figures
from sitelab.katex import Formulas, RenderedFormula
from sitelab.live_citations import link_citations, make_mark
from sitelab.pages.allowed_html import clean_html
from sitelab.pages.line_breaks import (
    join_punctuation,
    make_numbers_nonbreaking,
    make_options_nonbreaking,
    mark_long_cells,
)
from sitelab.pages.rebuild_cache import PageCache
from sitelab.pages.recall_cards import mark_cards
from sitelab.pages.tree import Element, parse
from sitelab.resolved_citations import ResolvedCitation
from sitelab.theme.search_index import hide_from_search


class Source(NamedTuple):
    """The input from which a page's content is made.

    Attributes:
        html: the HTML that Markdown made of the page; nothing in it is trusted.
        url: of the page, relative to the site's root.
        language: of the page: "en" or "es".
        citations: what the page cites, by the text of the citation.
        cards: its recall cards, in order.
        judged: whether the bench writes the page, so that it may mark verdicts and measured rows.
    """

    html: str
    url: str
    language: str
    citations: dict[str, ResolvedCitation]
    cards: Sequence[Card]
    judged: bool


class Fault(NamedTuple):
    """A part of a page that can't be shown: its words in the page's source, and the reason."""

    words: str
    why: str

    def format(self, file: Path, root: Path) -> str:
        """Return the fault as `path:line: why`; the path is relative to the repository `root`."""
        before, separator, _ = file.read_text("utf-8", "replace").partition(self.words)
        line = before.count("\n") + 1 if separator else 1
        return f"{file.relative_to(root)}:{line}: {self.why}"


class Content(NamedTuple):
    """The content of a page, as the site shows it.

    Attributes:
        html: the content.
        mark: the mark of the page's own cards (`live_citations.make_mark`).
        cards: the citations whose cards the page needs, by the cards' file names.
        faults: the parts of the page that can't be shown.
    """

    html: str
    mark: str
    cards: dict[str, ResolvedCitation]
    faults: list[Fault]


@dataclass
class Draft:
    """A page on its way through the passes.

    Attributes:
        page: the content; each pass changes it.
        source: the input.
        root: the repository's folder.
        draw: draws a formula, as `Formulas.draw` does.
        mark: the mark of the page's own cards.
        cards: the citations whose cards the page needs, by the cards' file names.
        faults: the parts that can't be shown.
    """

    page: Element
    source: Source
    root: Path
    draw: Callable[..., RenderedFormula]
    mark: str
    cards: dict[str, ResolvedCitation] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def _embed_pictures(draft: Draft) -> None:
    language = draft.source.language
    for name in embed_pictures(draft.page, draft.root / "docs", language):
        why = f"docs/{FOLDER} has no figure {name}.svg in {language}"
        draft.faults.append(Fault(f"{FOLDER}/{name}", why))


def _embed_figures(draft: Draft) -> None:
    language, url = draft.source.language, draft.source.url
    for name in embed_figures(draft.page, MAKERS, language=language, url=url, root=draft.root):
        why = f"there is no figure {name!r}; there are {', '.join(MAKERS)}"
        draft.faults.append(Fault(f"figure-{name}", why))


def _draw_formulas(draft: Draft) -> None:
    for tex, error in draw_formulas(draft.page, draft.draw, language=draft.source.language):
        draft.faults.append(Fault(tex, f"a formula that can't be drawn: {tex}: {error}"))


def _set_letters(draft: Draft) -> None:
    if "theory/" in draft.source.url or "arithmatex" in draft.source.html:
        set_letters(draft.page, draft.source.language)


def _link_citations(draft: Draft) -> None:
    language, url, known = draft.source.language, draft.source.url, draft.source.citations
    draft.cards = link_citations(draft.page, known, language=language, url=url, mark=draft.mark)


class Pass(NamedTuple):
    """A change of a page: its name, its function, and the passes that must come before it."""

    name: str
    change: Callable[[Draft], None]
    after: tuple[str, ...] = ()


# docs/reference/site.md says what each does and why it comes after others.
PASSES = (
    Pass("drawings", lambda draft: embed_drawings(draft.page, draft.source.language)),
    Pass("search", lambda draft: hide_from_search(draft.page)),
    Pass("plots", lambda draft: offer_narrow_plots(draft.page) if draft.source.judged else None),
    Pass("pictures", _embed_pictures),
    Pass("figures", _embed_figures),
    Pass("long cells", lambda draft: mark_long_cells(draft.page)),
    Pass("formulas", _draw_formulas, ("long cells",)),
    Pass("numbers", lambda draft: make_numbers_nonbreaking(draft.page), ("drawings", "formulas")),
    Pass("punctuation", lambda draft: join_punctuation(draft.page), ("formulas",)),
    Pass("letters", _set_letters, ("formulas", "numbers")),
    Pass("recall cards", lambda draft: mark_cards(draft.page, draft.source.cards)),
    Pass("citations", _link_citations, ("long cells", "punctuation")),
    Pass("options", lambda draft: make_options_nonbreaking(draft.page), ("citations",)),
)


class Contents:
    """Makes the contents of pages, and makes each again only when its input has changed."""

    def __init__(self) -> None:
        self._formulas = Formulas()
        self._cache: PageCache[Content] = PageCache()
        self._newest_change = 0

    def begin_build(self, root: Path) -> None:
        """Note when a file that figures show was last written: a drawing or a result."""
        folders = ((root / "docs").glob("[am]*/**/*"), (root / "experiments").glob("*/results/*"))
        times = (file.stat().st_mtime_ns for file in chain(*folders))
        self._newest_change = max(times, default=0)

    def get(self, source: Source, root: Path) -> Content:
        """Return a page's content; `root` is the repository's folder."""
        key = source, self._newest_change if "figure" in source.html else 0
        return self._cache.get_or_make(source.url, key, lambda: self._make(source, root))

    def _make(self, source: Source, root: Path) -> Content:
        page, mark = parse(clean_html(source.html, judged=source.judged)), make_mark(source.html)
        draft = Draft(page, source, root, self._formulas.draw, mark)
        for each in PASSES:
            each.change(draft)
        return Content(page.html(), mark, draft.cards, draft.faults)
