"""Reads one paragraph, heading or table cell: prose, citations, names, numbers and images."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from notelab.lines import names_in
from notelab.page import citation_syntax, embedded_html
from notelab.page.citation import Citation, Span
from notelab.page.citation_syntax import RANGE, parse_all, parse_range
from notelab.page.note import FileLink, Marker, NumberLink
from notelab.page.scanner import CODE, CODE_END, LINK, LINK_END, MARKS, ScannedText, scan_text

if TYPE_CHECKING:
    from markdown_it.token import Token

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
# Characters that look like a space but do not separate words for `str.split`.
_INVISIBLE_BLANKS = dict.fromkeys((0x115F, 0x1160, 0x200B, 0x2800, 0x3164, 0xFFA0), " ")
_LOCAL_LINES = re.compile(
    r"(?![A-Za-z][\w+.-]*:)(?P<path>[^#?\s]+)(?:\?[^#\s]*)?"
    rf"#(?:lines-)?(?P<lines>(?:(?<=-)|(?=L)){RANGE})"
)
_MAX_RUNS = 50
_RESULTS = re.compile(r"(?:^|/)RESULTS(?:\.[a-z]{2})?\.md$")


def count_words(prose: str) -> int:
    """Count the whitespace-separated tokens that hold a letter or a digit."""
    return sum(
        1 for word in prose.translate(_INVISIBLE_BLANKS).split() if _LETTER_OR_DIGIT.search(word)
    )


def number_link(text: str, href: str, span: Span) -> list[NumberLink]:
    """Return a link to a results page as a quoted number, else nothing.

    A link to the whole page (no anchor, no digit in its text) quotes no number.
    """
    path, _, anchor = href.partition("#")
    path = path.partition("?")[0]
    is_quoted = bool(anchor) or any(char.isdigit() for char in text)
    return [NumberLink(text, path, anchor, span)] if is_quoted and _RESULTS.search(path) else []


def parse_link_target(href: str, span: Span) -> Citation | FileLink | None:
    """Return what a link's target cites: lines or a file on a code host, or local lines."""
    for address, _ in citation_syntax.find_addresses(href):
        return citation_syntax.read(address, span)
    if match := _LOCAL_LINES.fullmatch(href):
        first, last, problem = parse_range(match["lines"].replace(":", "-"))
        path = unquote(match["path"])
        return Citation(href, "", path, first, last, problem, span, relative=True, form="link")
    if _LOCAL_LINES.match(href):
        problem = "is a link to lines of a file in a form that the checker doesn't read"
        return Citation(href, "", href, 0, 0, problem, span)
    return None


def add_link_target(target: Citation | FileLink | None, scanned: ScannedText) -> None:
    """Add the target of a link outside of running text to what was scanned."""
    if isinstance(target, Citation):
        scanned.citations.append(target)
    elif target:
        scanned.files.append(target)


class PositionMap:
    """Maps offsets in an inline token's content to positions in the file."""

    def __init__(self, block: "Token", lines: list[str]) -> None:
        """Prepare the map for a token, given the lines of the page."""
        first, end = block.map or [0, 0]
        self.content = block.content
        self._starts: list[tuple[int, int, int]] = []  # offset in content, row, column
        offset = 0
        for index, piece in enumerate(block.content.split("\n")):
            row = min(first + index, max(end - 1, first))
            line = lines[row] if row < len(lines) else ""
            self._starts.append((offset, row + 1, max(line.find(piece.strip()), 0) + 1))
            offset += len(piece) + 1

    def span(self, start: int, end: int) -> Span:
        """Return the span in the file of a range of the content."""
        row, column = self._at(start)
        end_row, end_column = self._at(end)
        return Span(row, column, end_row, end_column)

    def _at(self, offset: int) -> tuple[int, int]:
        line_start = self._starts[
            max(bisect_right(self._starts, offset, key=lambda start: start[0]) - 1, 0)
        ]
        return line_start[1], line_start[2] + offset - line_start[0]


class Inline:
    """Collects prose, citations, names, number links and images of one inline token."""

    def __init__(self, children: "list[Token]", positions: PositionMap) -> None:
        """Prepare; `run` collects."""
        self.children, self.positions = children, positions
        self.prose = self.opening_bold = ""
        self.scanned = ScannedText()
        self.names: list[str] = []
        self._names: list[tuple[int, list[str]]] = []  # by the offset of their code span
        self.numbers: list[NumberLink] = []
        self.images: list[Marker] = []
        self._cursor = 0
        self._flat: list[str] = []  # the pieces of the text for the scanner
        self._length = 0
        self._starts: list[tuple[int, int]] = []  # offset in the flat text, in the content
        self._codes: dict[int, list[Citation | FileLink]] = {}
        self._targets: list[Citation | FileLink | None] = []
        self._backticks: dict[int, list[int]] = {}  # length of a run of backticks, its offsets
        for run in re.finditer("`+", positions.content):
            self._backticks.setdefault(len(run[0]), []).append(run.start())

    def run(self) -> None:
        """Read the token's children once, from left to right."""
        link: tuple[str, str, int] | None = None
        for child in self.children:
            if child.type in ("text", "text_special"):
                self._read_text(child.content)
            elif child.type in ("softbreak", "hardbreak"):
                self.prose += "\n"
                self._add_flat(" ", self._cursor)
            elif child.type == "code_inline":
                self._read_code(child)
            elif child.type == "image":
                position = self._find("![")
                self.images.append(Marker("an image", self.positions.span(position, position + 2)))
            elif child.type == "html_inline":
                self._read_html(child.content)
            elif child.type == "link_open":
                position = self._find("[")
                if title := child.attrs.get("title"):
                    self.prose += f" {title} "
                    self._add_flat(f" {MARKS.sub(' ', str(title))} ", position)
                link = (str(child.attrs.get("href", "")), self.prose, position)
                self._add_flat(LINK, position)
            elif child.type == "link_close" and link:
                self._add_flat(LINK_END, self._cursor)
                self._read_link(*link)
                link = None
        self.opening_bold = self._read_opening_bold()
        scanned = scan_text("".join(self._flat), self._span, self._codes, self._targets)
        scanned.citations = self.scanned.citations + scanned.citations
        scanned.files = self.scanned.files + scanned.files
        self.scanned = scanned
        for offset, names in self._names:  # the words of a path anchor nothing
            self.names += [] if offset in scanned.paths else names

    def _add_flat(self, piece: str, position: int) -> None:
        """Add a piece of text for the scanner; `position` is its offset in the content."""
        self._flat.append(piece)
        self._starts.append((self._length, position))
        self._length += len(piece)

    def _span(self, start: int, end: int) -> Span:
        return self.positions.span(self._to_content(start), self._to_content(end))

    def _to_content(self, offset: int) -> int:
        index = bisect_right(self._starts, offset, key=lambda pair: pair[0]) - 1
        start, position = self._starts[max(index, 0)]
        return position + offset - start

    def _read_opening_bold(self) -> str:
        children = [child for child in self.children if child.content or child.type != "text"]
        opening = 0
        while opening < len(children) and children[opening].type in ("em_open", "link_open"):
            opening += 1
        if opening == len(children) or children[opening].type != "strong_open":
            return ""
        title = []
        for child in children[opening + 1 :]:
            if child.type == "strong_close":
                break
            title.append(" " if child.type.endswith("break") else child.content)
        title_text = "".join(title).strip()
        return title_text if count_words(title_text) else ""

    def _find(self, text: str) -> int:
        position = self.positions.content.find(text, self._cursor)
        return position if position >= 0 else self._cursor

    def _read_text(self, text: str) -> None:
        self.prose += text
        position = self.positions.content.find(text, self._cursor)
        self._add_flat(MARKS.sub("\ufffd", text), position if position >= 0 else self._cursor)
        if position >= 0:
            self._cursor = position + len(text)

    def _read_code(self, child: "Token") -> None:
        start, end = self._find_code(child)
        self._cursor = end
        code = child.content.strip()
        span = self.positions.span(start, end)
        citations = [
            citation_syntax.read(address, span)
            for address, _ in citation_syntax.find_addresses(code)
        ]
        citations = citations or list(self._place_ranges(list(parse_all(code, span)), start))
        is_citation = any(getattr(target, "form", "") != "maybe" for target in citations)
        self._codes |= {self._length: citations} if citations else {}
        self._names += [] if is_citation else [(self._length, names_in(code))]
        self.prose += " " if is_citation else child.content
        self._add_flat(f"{CODE}{'' if is_citation else MARKS.sub(' ', code)}{CODE_END}", start)

    def _place_ranges(self, citations: list[Citation], position: int) -> Iterator[Citation]:
        """Yield the citations of a code span; each range after the first gets a span of its own."""
        for index, citation in enumerate(citations):
            start = self.positions.content.find(citation.text, position)
            end = start + len(citation.text)
            has_own_place = index and start >= 0
            yield (
                msgspec.structs.replace(citation, span=self.positions.span(start, end))
                if has_own_place
                else citation
            )
            position = end if start >= 0 else position

    def _find_code(self, child: "Token") -> tuple[int, int]:
        """Return the range of a code span: the next run of its backticks that encloses its text."""
        size = len(child.markup)
        runs = self._backticks.get(size, [])
        index = bisect_right(runs, self._cursor - 1)
        # Backticks that are escaped or part of an address open no code span and are skipped.
        for opening, closing in pairwise(runs[index : index + _MAX_RUNS]):
            inner = self.positions.content[opening + size : closing].replace("\n", " ")
            if inner in (child.content, f" {child.content} "):
                return opening, closing + size
        return self._cursor, self._cursor

    def _read_html(self, html_text: str) -> None:
        position = self._find(html_text)
        self._cursor = position + len(html_text)
        content = embedded_html.scan(html_text)
        span = self.positions.span(position, position + len(html_text))
        self.prose += content.text
        if content.text.strip():
            self._add_flat(MARKS.sub(" ", content.text), position)
        self.images += [Marker(kind, span) for kind, _ in content.drawings]
        for href, _ in content.links:
            self.numbers += number_link("an HTML link", href, span)
            add_link_target(parse_link_target(href, span), self.scanned)

    def _read_link(self, href: str, prose_before: str, position: int) -> None:
        text = " ".join(self.prose[len(prose_before) :].split())
        span = self.positions.span(position, position + len(text) + 2)
        self.numbers += number_link(text, href, span)
        self._targets.append(parse_link_target(href, span))
        if href.startswith("data:"):
            self.images.append(Marker("a `data:` link", span))
