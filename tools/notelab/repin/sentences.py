"""The sentences of a workbook's pages that speak of a source, each with what it names and cites."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from notelab.book.workbook import Workbook, usable
from notelab.cited.names import is_anchor, names_in
from notelab.page.citation import Citation
from notelab.page.citation_syntax import looks_like_citation
from notelab.page.note import ProseBlock
from notelab.repin.carried import Place

_CODE = re.compile(r"`+([^`]+)`+")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
# A full stop ends a sentence, but that of a number alone, and so does a table's column.
_END = re.compile(
    r"(?<![\s|]\d\.)(?<![\s|]\d\d\.)(?<=[.!?])[*_)\"”»]*\s+(?=[*_(\"“«¿¡]*[A-ZÁÉÍÓÚÑ`])"
    r"|<br>|\s\|\s(?!\Z)"
)


class Sentence(msgspec.Struct, frozen=True):
    """A sentence: where it stands, its words without citations, what it names and cites.

    `page` is its path from the repository. `around` are the names of the whole choice, paragraph or
    table row, `beside` what it cites. A row's columns are sentences, told after what the row begins
    with; `anchor` is the row's own, which a claim has, and all of a claim's row is told by the
    claim's words.
    """

    page: str
    row: int
    text: str
    names: list[str]
    around: list[str]
    cited: list[Place]
    beside: list[Place]
    anchor: str = ""


def about(book: Workbook, source: str, language: str) -> Iterator[Sentence]:
    """Yield the sentences of a lab's pages, in one language, that speak of `source`.

    They stand in a cell that cites it, and don't cite other sources alone.
    """
    for view in book.views:
        if view.note and view.page.language == language:
            for cell in view.note.blocks:
                cited = [(one, _source(book, one)) for one in cell.citations if usable(one)]
                if any(name == source for _, name in cited):
                    page = view.page.path.relative_to(book.lab.root).as_posix()
                    yield from _of_cell(page, view.text, cell, cited, source)


def _source(book: Workbook, citation: Citation) -> str:
    file = book.resolver.resolve(citation).file
    return file.source if file else ""


def _of_cell(
    page: str, whole: str, cell: ProseBlock, cited: list[tuple[Citation, str]], source: str
) -> Iterator[Sentence]:
    """Cut a cell into sentences; what holds only citations belongs to the one before."""
    lines = whole.split("\n")[cell.span.row - 1 : max(cell.span.end_row, cell.span.row)]
    text = "\n".join(lines)
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    ends = [found.end() for found in _END.finditer(text)]
    cuts = [0, *(end for end in ends if not _only_cites(text, end, ends)), len(text)]
    held: dict[int, list[tuple[Place, str]]] = {}
    for one, of in cited:
        at = starts[min(one.span.row - cell.span.row, len(starts) - 1)] + one.span.column - 1
        index = min(bisect_right(cuts, at) - 1, len(cuts) - 2)
        held.setdefault(index, []).append((Place(one.path, one.first, one.last), of))
    anchor = _ANCHOR.search(text)
    around = list(filter(is_anchor, cell.names))
    head = _head(text, text[: cuts[1]], claim=anchor is not None)
    for index, (first, last) in enumerate(pairwise(cuts)):
        piece = text[first:last]
        names = _named(piece)
        there = held.get(index, [])
        meant = [place for place, of in there if of == source]
        if meant or (names and not there):
            said = plain(piece)
            said = head if anchor else f"{head} — {said}" if head and index else said
            yield Sentence(
                page,
                cell.span.row + text.count("\n", 0, first),
                said,
                names,
                around,
                meant,
                [place for some in held.values() for place, of in some if of == source],
                anchor[1] if anchor else "",
            )


def _head(text: str, first: str, *, claim: bool) -> str:
    """Return what a table's row is about, or ''."""
    columns = text.split(" | ")
    if claim and len(columns) > 1:
        return f"{plain(columns[0])}. {plain(columns[1].partition('<br>')[0])}"
    return plain(first) if text.startswith("|") else ""


def _only_cites(text: str, start: int, ends: list[int]) -> bool:
    """Tell whether the piece that begins at `start` has no words of its own."""
    after = bisect_right(ends, start)
    piece = text[start : ends[after] if after < len(ends) else len(text)]
    return not re.search(r"[^\W\d_]{2}", _without_citations(piece))


def _named(piece: str) -> list[str]:
    spans = (found[1].strip() for found in _CODE.finditer(piece))
    names = (name for code in spans if not looks_like_citation(code) for name in names_in(code))
    return list(dict.fromkeys(filter(is_anchor, names)))


def _without_citations(piece: str) -> str:
    return _CODE.sub(lambda found: "" if looks_like_citation(found[1]) else found[0], piece)


def plain(piece: str) -> str:
    """Return a sentence as it is quoted: no citations, links by their text, on one line."""
    text = _LINK.sub(r"\1", _ANCHOR.sub("", _without_citations(piece)))
    text = re.sub(r"\s+([.,;:!?)])", r"\1", " ".join(text.split()))
    return text.strip(" |-").replace("()", "").strip()
