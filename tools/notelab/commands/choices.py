"""The choices of two readings, matched by the lines and symbols that both cite."""

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


Pair = tuple[Choice | None, Choice | None]


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


class Comparison(msgspec.Struct):
    """Pairs of the learner's choice and the solution's; the partner is None if there is none."""

    matched: list[Pair]
    missed: list[Pair]
    own_only: list[Pair]


def match_choices(own_choices: list[Choice], solution_choices: list[Choice]) -> Comparison:
    """Match each of the learner's choices with every choice of the solution that shares a line.

    A choice that shares no line has the one choice of the same innermost function or class as its
    partner, if there is any. Partners come in the order of how much of the learner's lines they
    cite, then of how many words of titles and code names they share.
    """
    matched: list[Pair] = []
    own_only: list[Pair] = []
    for choice in own_choices:
        partners = _partners(choice, solution_choices)
        matched += [(choice, partner) for partner in partners]
        own_only += [] if partners else [(choice, None)]
    partner_ids = {id(partner) for _, partner in matched}
    missed: list[Pair] = [
        (None, choice) for choice in solution_choices if id(choice) not in partner_ids
    ]
    return Comparison(matched, missed, own_only)


def _partners(choice: Choice, solution_choices: list[Choice]) -> list[Choice]:
    def rank(partner: Choice) -> tuple[float, int]:
        return -_share_of_lines(choice, partner), -len(choice.words & partner.words)

    sharing = [partner for partner in solution_choices if _share_of_lines(choice, partner)]
    if sharing:
        return sorted(sharing, key=rank)
    symbols = {_symbol(cited) for cited in choice.citations if cited.symbol}
    same_symbol = [
        partner
        for partner in solution_choices
        if symbols.intersection(map(_symbol, partner.citations))
    ]
    return sorted(same_symbol, key=rank)[:1]


def _share_of_lines(choice: Choice, partner: Choice) -> float:
    """Return which share of the lines of `choice`'s citations `partner` cites, too."""
    shares = [
        max((_common_lines(cited, other) for other in partner.citations), default=0)
        / (cited.end - cited.start + 1)
        for cited in choice.citations
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _common_lines(a: CitedRange, b: CitedRange) -> int:
    if (a.source, a.path) != (b.source, b.path):
        return 0
    return max(0, min(a.end, b.end) - max(a.start, b.start) + 1)


def _symbol(cited: CitedRange) -> tuple[str, str, str]:
    return cited.source, cited.path, cited.symbol
