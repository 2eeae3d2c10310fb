"""The choices of pages, each with what it covers: lines of files, and the symbols around them."""

from pathlib import Path

import msgspec

from notelab.book.workbook import Workbook, usable
from notelab.errors import display_path
from notelab.lab import pages
from notelab.page import reading
from notelab.page.citation import Citation, format_citation
from notelab.page.note import Note, ProseBlock


class Cited(msgspec.Struct, frozen=True):
    """Lines of a file, and the innermost symbol that holds them, '' where none is known."""

    source: str
    path: str
    start: int
    end: int
    symbol: str = ""

    def __str__(self) -> str:
        """Return it as a citation is written."""
        return format_citation(self.path, self.start, self.end)


class Choice(msgspec.Struct, frozen=True):
    """A choice of a page: its bold title, where it stands, what it cites."""

    title: str = ""
    filename: str = ""
    row: int = 0
    citations: tuple[Cited, ...] = ()


def of_lab(book: Workbook) -> list[Choice]:
    """Return the choices of the notes that were written for a lab, in its first language."""
    solution = solution_pages(book)
    return [
        _choice(book, cell, one.filename)
        for one in book.views
        if one.page.listed and one.page.original is None and one.page.path not in solution
        for cell in (one.note.choices if one.note else [])
        if cell.citations
    ]


def solution_pages(book: Workbook) -> list[Path]:
    """Return the pages that a lab says it is compared with, in its first language if they are."""
    found = []
    for place in book.lab.solution:
        own = pages.translation_path(place, book.lab.languages[0])
        found.append(own if own.is_file() else place)
    return found


def of_page(book: Workbook, path: Path) -> tuple[Note, list[Choice]]:
    """Read a page that the lab doesn't judge; its citations mean what they would in the lab."""
    note = reading.read(pages.read(path).text)
    cited = [one for cell in note.choices for one in cell.citations]
    book.evidence.gather(book.resolver.wanted(cited))
    return note, [
        _choice(book, cell, display_path(path)) for cell in note.choices if cell.citations
    ]


def _choice(book: Workbook, cell: ProseBlock, filename: str) -> Choice:
    cited = tuple(_cited(book, one) for one in cell.citations if usable(one))
    return Choice(cell.title.rstrip("."), filename, cell.span.row, cited)


def _cited(book: Workbook, citation: Citation) -> Cited:
    first, last = citation.first, citation.last
    file = book.resolver.resolve(citation).file
    if file is None:
        return Cited(citation.source, citation.path, first, last)
    symbol = file.outline.innermost(first, last) if file.outline else None
    locked = book.lock.citation(file.source, citation.key_in(file.source)) if book.lock else None
    name = symbol.name if symbol else locked.symbol if locked else ""
    return Cited(file.source, citation.path, first, last, name)
