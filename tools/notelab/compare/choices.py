"""The choices of pages, each with the lines and symbols that it cites."""

import re
from pathlib import Path

import msgspec

from notelab.book.workbook import Workbook, is_usable
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
    """A choice of a page: its bold title, its position and the ranges that it cites.

    `section` is the heading above it; `words` are those of its title and its code names.
    """

    title: str = ""
    filename: str = ""
    row: int = 0
    citations: tuple[CitedRange, ...] = ()
    section: str = ""
    words: frozenset[str] = frozenset()


def list_choices(book: Workbook) -> list[Choice]:
    """Return the choices of a lab's own notes, without its solution, in its first language."""
    solution = solution_pages(book)
    return [
        choice
        for view in book.views
        if view.page.listed and view.page.original is None and view.page.path not in solution
        for choice in (_note_choices(book, view.note, view.filename) if view.note else [])
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
    book.evidence.gather(book.resolver.list_wanted_files(citations))
    return note, _note_choices(book, note, display_path(path))


def _note_choices(book: Workbook, note: Note, filename: str) -> list[Choice]:
    return [_to_choice(book, note, block, filename) for block in note.choices if block.citations]


def _to_choice(book: Workbook, note: Note, block: ProseBlock, filename: str) -> Choice:
    title, row = block.title.rstrip("."), block.span.row
    ranges = tuple(_to_range(book, citation) for citation in block.citations if is_usable(citation))
    above = [heading.text for heading in note.headings if heading.span.row < row]
    words = frozenset(re.findall(r"\w{3,}", " ".join([title, *block.names]).lower()))
    return Choice(title, filename, row, ranges, above[-1] if above else "", words)


def _to_range(book: Workbook, citation: Citation) -> CitedRange:
    first, last = citation.first, citation.last
    file = book.resolver.resolve(citation).file
    if file is None:
        return CitedRange(citation.source, citation.path, first, last)
    symbol = file.outline.innermost(first, last) if file.outline else None
    locked = book.lock.citation(file.source, citation.key_in(file.source)) if book.lock else None
    name = symbol.name if symbol else locked.symbol if locked else ""
    return CitedRange(file.source, citation.path, first, last, name)
