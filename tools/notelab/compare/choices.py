"""The choices of pages, each with the lines and symbols that it cites."""

from pathlib import Path

import msgspec

from notelab.book.workbook import Workbook, usable
from notelab.errors import display_path
from notelab.lab import pages
from notelab.page import reading
from notelab.page.citation import Citation, format_citation
from notelab.page.note import Note, ProseBlock


class CitedRange(msgspec.Struct, frozen=True):
    """Lines of a file and their innermost symbol, which is '' if it is unknown."""

    source: str
    path: str
    start: int
    end: int
    symbol: str = ""

    def __str__(self) -> str:
        """Return the range as a citation."""
        return format_citation(self.path, self.start, self.end)


class Choice(msgspec.Struct, frozen=True):
    """A choice of a page: its bold title, its position and the ranges that it cites."""

    title: str = ""
    filename: str = ""
    row: int = 0
    citations: tuple[CitedRange, ...] = ()


def list_choices(book: Workbook) -> list[Choice]:
    """Return the choices of a lab's own notes, without its solution, in its first language."""
    solution = solution_pages(book)
    return [
        _to_choice(book, block, view.filename)
        for view in book.views
        if view.page.listed and view.page.original is None and view.page.path not in solution
        for block in (view.note.choices if view.note else [])
        if block.citations
    ]


def solution_pages(book: Workbook) -> list[Path]:
    """Return the pages that a lab is compared with, in its first language where they exist."""
    paths = []
    for path in book.lab.solution:
        translation = pages.translation_path(path, book.lab.languages[0])
        paths.append(translation if translation.is_file() else path)
    return paths


def read_choices(book: Workbook, path: Path) -> tuple[Note, list[Choice]]:
    """Read a page that is not part of the lab; its citations are resolved as in the lab."""
    note = reading.read(pages.read(path).text)
    citations = [citation for block in note.choices for citation in block.citations]
    book.evidence.gather(book.resolver.wanted(citations))
    return note, [
        _to_choice(book, block, display_path(path)) for block in note.choices if block.citations
    ]


def _to_choice(book: Workbook, block: ProseBlock, filename: str) -> Choice:
    ranges = tuple(_to_range(book, citation) for citation in block.citations if usable(citation))
    return Choice(block.title.rstrip("."), filename, block.span.row, ranges)


def _to_range(book: Workbook, citation: Citation) -> CitedRange:
    first, last = citation.first, citation.last
    file = book.resolver.resolve(citation).file
    if file is None:
        return CitedRange(citation.source, citation.path, first, last)
    symbol = file.outline.innermost(first, last) if file.outline else None
    locked = book.lock.citation(file.source, citation.key_in(file.source)) if book.lock else None
    name = symbol.name if symbol else locked.symbol if locked else ""
    return CitedRange(file.source, citation.path, first, last, name)
