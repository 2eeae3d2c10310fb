"""Finds the sentences of a workbook's pages about a source, with their names and citations."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from notelab.book.workbook import Workbook, is_usable
from notelab.lines import is_anchor, names_in
from notelab.page.citation import Citation
from notelab.page.citation_syntax import looks_like_citation
from notelab.page.note import ProseBlock
from notelab.repin.changes import Place

_CODE_SPAN = re.compile(r"`+([^`]+)`+")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
# A full stop ends a sentence, but that of a number alone, and so does a table's column.
_SENTENCE_END = re.compile(
    r"(?<![\s|]\d\.)(?<![\s|]\d\d\.)(?<=[.!?])[*_)\"”»]*\s+(?=[*_(\"“«¿¡]*[A-ZÁÉÍÓÚÑ`])"
    r"|<br>|\s\|\s(?!\Z)"
)


class Sentence(msgspec.Struct, frozen=True):
    """A sentence: its position, its text without citations, and what it names and cites.

    `page` is the path from the repository. `block_names` and `block_places` are what the whole
    choice, paragraph or table row names and cites. Each column of a table row is a sentence, with
    the row's first column before it. `anchor` is the anchor of a claim's row; every sentence of
    such a row has the claim's own words.
    """

    page: str
    row: int
    text: str
    names: list[str]
    block_names: list[str]
    places: list[Place]
    block_places: list[Place]
    anchor: str = ""


def find_sentences(book: Workbook, source: str, language: str) -> Iterator[Sentence]:
    """Yield the sentences about `source` of a lab's pages in one language.

    They are in a block that cites the source, and do not cite only other sources.
    """
    for view in book.views:
        if view.note and view.page.language == language:
            for block in view.note.blocks:
                citations = [
                    (citation, _find_source(book, citation))
                    for citation in block.citations
                    if is_usable(citation)
                ]
                if any(name == source for _, name in citations):
                    page = view.page.path.relative_to(book.lab.root).as_posix()
                    yield from _split_block(page, view.text, block, citations, source)


def _find_source(book: Workbook, citation: Citation) -> str:
    file = book.resolver.resolve(citation).file
    return file.source if file else ""


def _split_block(
    page: str, page_text: str, block: ProseBlock, citations: list[tuple[Citation, str]], source: str
) -> Iterator[Sentence]:
    """Split a block into sentences; a piece that only cites belongs to the sentence before it."""
    lines = page_text.split("\n")[block.span.row - 1 : max(block.span.end_row, block.span.row)]
    text = "\n".join(lines)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    cuts = [0, *(end for end in ends if not _only_cites(text, end, ends)), len(text)]
    cited: dict[int, list[tuple[Place, str]]] = {}  # by sentence, each place with its source
    for citation, citation_source in citations:
        row = min(citation.span.row - block.span.row, len(starts) - 1)
        offset = starts[row] + citation.span.column - 1
        index = min(bisect_right(cuts, offset) - 1, len(cuts) - 2)
        place = Place(citation.path, citation.first, citation.last)
        cited.setdefault(index, []).append((place, citation_source))
    block_places = [place for pairs in cited.values() for place, name in pairs if name == source]
    anchor = _ANCHOR.search(text)
    block_names = list(filter(is_anchor, block.names))
    head = _row_head(text, text[: cuts[1]], claim=anchor is not None)
    for index, (first, last) in enumerate(pairwise(cuts)):
        piece = text[first:last]
        names = _find_names(piece)
        places = [place for place, name in cited.get(index, []) if name == source]
        if places or (names and index not in cited):
            quoted = quote(piece)
            quoted = head if anchor else f"{head} — {quoted}" if head and index else quoted
            row = block.span.row + text.count("\n", 0, first)
            claim = anchor[1] if anchor else ""
            yield Sentence(page, row, quoted, names, block_names, places, block_places, claim)


def _row_head(text: str, first_sentence: str, *, claim: bool) -> str:
    """Return the words that introduce a table row, or ''."""
    columns = text.split(" | ")
    if claim and len(columns) > 1:
        return f"{quote(columns[0])}. {quote(columns[1].partition('<br>')[0])}"
    return quote(first_sentence) if text.startswith("|") else ""


def _only_cites(text: str, start: int, ends: list[int]) -> bool:
    """Return whether the piece that begins at `start` has no words of its own."""
    next_end = bisect_right(ends, start)
    piece = text[start : ends[next_end] if next_end < len(ends) else len(text)]
    return not re.search(r"[^\W\d_]{2}", _without_citations(piece))


def _find_names(piece: str) -> list[str]:
    spans = (match[1].strip() for match in _CODE_SPAN.finditer(piece))
    names = (name for code in spans if not looks_like_citation(code) for name in names_in(code))
    return list(dict.fromkeys(filter(is_anchor, names)))


def _without_citations(piece: str) -> str:
    return _CODE_SPAN.sub(lambda match: "" if looks_like_citation(match[1]) else match[0], piece)


def quote(piece: str) -> str:
    """Return a sentence as it is quoted: without citations, with the text of links, on one line."""
    text = _LINK.sub(r"\1", _ANCHOR.sub("", _without_citations(piece)))
    text = re.sub(r"\s+([.,;:!?)])", r"\1", " ".join(text.split()))
    return text.strip(" |-").replace("()", "").strip()
