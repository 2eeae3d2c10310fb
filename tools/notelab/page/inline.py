"""What one paragraph, heading or cell says: its prose, citations, names, numbers and images."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from notelab.cited.names import names_in
from notelab.page import embedded_html, permalink
from notelab.page.citation import Citation, Span
from notelab.page.note import FileLink, NumberLink, Seen
from notelab.page.scanner import CODE, CODE_END, LINK, LINK_END, MARKS, Scanned, scan
from notelab.page.spelling import RANGE, lines_of, parse_all

if TYPE_CHECKING:
    from markdown_it.token import Token

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
# What looks like a space and is none to `str.split`: words may not hide behind it.
_BLANKS = dict.fromkeys((0x115F, 0x1160, 0x200B, 0x2800, 0x3164, 0xFFA0), " ")
_LOCAL_LINES = re.compile(
    rf"(?![A-Za-z][\w+.-]*:)(?P<path>[^#?\s]+)#(?:lines-)?(?P<lines>(?:(?<=-)|(?=L)){RANGE})"
)
_RUNS_TRIED = 50
_RESULTS = re.compile(r"(?:^|/)RESULTS(?:\.[a-z]{2})?\.md$")


def count_words(prose: str) -> int:
    """Count whitespace-separated tokens that hold a letter or a digit."""
    return sum(1 for word in prose.translate(_BLANKS).split() if _LETTER_OR_DIGIT.search(word))


def number_link(text: str, href: str, span: Span) -> list[NumberLink]:
    """Return the link as a quoted number where it goes to a results page.

    A link to the page as a whole, to no row and with no digit in its text, quotes nothing.
    """
    path, _, anchor = href.partition("#")
    path = path.partition("?")[0]
    quotes = bool(anchor) or any(char.isdigit() for char in text)
    return [NumberLink(text, path, anchor, span)] if quotes and _RESULTS.search(path) else []


def cited_by_link(href: str, span: Span) -> Citation | FileLink | None:
    """Return what a link's target cites: lines or a file on a code host, lines of a page's own."""
    for address, _ in permalink.found_in(href):
        return permalink.read(address, span)
    if found := _LOCAL_LINES.fullmatch(href):
        first, last, problem = lines_of(found["lines"])
        path = unquote(found["path"])
        return Citation(href, "", path, first, last, problem, span, relative=True)
    if _LOCAL_LINES.match(href):
        problem = "links to lines of a file in a form that nothing here reads"
        return Citation(href, "", href, 0, 0, problem, span)
    return None


def take(cited: Citation | FileLink | None, scanned: Scanned) -> None:
    """Add what a link outside of running text cites."""
    if isinstance(cited, Citation):
        scanned.citations.append(cited)
    elif cited:
        scanned.files.append(cited)


class Places:
    """Where a position in an inline token's content stands in the file."""

    def __init__(self, block: "Token", lines: list[str]) -> None:
        """Take the token and the page's lines."""
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
        """Return the place in the file of a stretch of the content."""
        row, column = self._at(start)
        end_row, end_column = self._at(end)
        return Span(row, column, end_row, end_column)

    def _at(self, offset: int) -> tuple[int, int]:
        best = self._starts[
            max(bisect_right(self._starts, offset, key=lambda start: start[0]) - 1, 0)
        ]
        return best[1], best[2] + offset - best[0]


class Inline:
    """Gathers prose, citations, names, number links and images of one inline token."""

    def __init__(self, children: "list[Token]", places: Places) -> None:
        """Nothing is gathered before `run`."""
        self.children, self.places = children, places
        self.prose = self.opening_bold = ""
        self.scanned = Scanned()
        self.names: list[str] = []
        self.numbers: list[NumberLink] = []
        self.images: list[Seen] = []
        self._cursor = 0
        self._flat: list[str] = []  # the text as the scanner reads it
        self._length = 0
        self._starts: list[tuple[int, int]] = []  # offset in that text, in the content
        self._codes: dict[int, list[Citation | FileLink]] = {}
        self._targets: list[Citation | FileLink | None] = []
        self._backticks: dict[int, list[int]] = {}  # where runs of so many backticks begin
        for found in re.finditer("`+", places.content):
            self._backticks.setdefault(len(found[0]), []).append(found.start())

    def run(self) -> None:
        """Walk the token's children once, from left to right."""
        link: tuple[str, str, int] | None = None
        for child in self.children:
            if child.type in ("text", "text_special"):
                self._text(child.content)
            elif child.type in ("softbreak", "hardbreak"):
                self.prose += "\n"
                self._add(" ", self._cursor)
            elif child.type == "code_inline":
                self._code(child)
            elif child.type == "image":
                place = self._find("![")
                self.images.append(Seen("an image", self.places.span(place, place + 2)))
            elif child.type == "html_inline":
                self._html(child.content)
            elif child.type == "link_open":
                place = self._find("[")
                if title := child.attrs.get("title"):
                    self.prose += f" {title} "
                    self._add(f" {MARKS.sub(' ', str(title))} ", place)
                link = (str(child.attrs.get("href", "")), self.prose, place)
                self._add(LINK, place)
            elif child.type == "link_close" and link:
                self._add(LINK_END, self._cursor)
                self._link(*link)
                link = None
        self.opening_bold = self._bold_at_the_start()
        scanned = scan("".join(self._flat), self._span, self._codes, self._targets)
        scanned.citations = self.scanned.citations + scanned.citations
        scanned.files = self.scanned.files + scanned.files
        self.scanned = scanned

    def _add(self, piece: str, at: int) -> None:
        """Add to the text for the scanner what stands at an offset of the content."""
        self._flat.append(piece)
        self._starts.append((self._length, at))
        self._length += len(piece)

    def _span(self, start: int, end: int) -> Span:
        return self.places.span(self._in_content(start), self._in_content(end))

    def _in_content(self, offset: int) -> int:
        at = bisect_right(self._starts, offset, key=lambda pair: pair[0]) - 1
        start, place = self._starts[max(at, 0)]
        return place + offset - start

    def _bold_at_the_start(self) -> str:
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
        said = "".join(title).strip()
        return said if count_words(said) else ""

    def _find(self, what: str) -> int:
        at = self.places.content.find(what, self._cursor)
        return at if at >= 0 else self._cursor

    def _text(self, said: str) -> None:
        self.prose += said
        at = self.places.content.find(said, self._cursor)
        self._add(MARKS.sub("\ufffd", said), at if at >= 0 else self._cursor)
        if at >= 0:
            self._cursor = at + len(said)

    def _code(self, child: "Token") -> None:
        start, end = self._code_place(child)
        self._cursor = end
        code = child.content.strip()
        span = self.places.span(start, end)
        cited = [permalink.read(address, span) for address, _ in permalink.found_in(code)]
        cited = cited or list(self._each_range(list(parse_all(code, span)), start))
        if cited:
            self._codes[self._length] = cited
            self.prose += " "
        else:
            self.names += names_in(code)
            self.prose += child.content
        self._add(f"{CODE}{'' if cited else MARKS.sub(' ', code)}{CODE_END}", start)

    def _each_range(self, cited: list[Citation], at: int) -> Iterator[Citation]:
        """Yield what a code span cites; each range after the first has a place of its own."""
        for index, one in enumerate(cited):
            found = self.places.content.find(one.text, at)
            end = found + len(one.text)
            placed = index and found >= 0
            yield msgspec.structs.replace(one, span=self.places.span(found, end)) if placed else one
            at = end if found >= 0 else at

    def _code_place(self, child: "Token") -> tuple[int, int]:
        """Find a code span's own place: the next run of its backticks that closes with its text."""
        size = len(child.markup)
        runs = self._backticks.get(size, [])
        at = bisect_right(runs, self._cursor - 1)
        # Runs that are escaped, or in an address, open nothing; a few of them are passed over.
        for opening, closing in pairwise(runs[at : at + _RUNS_TRIED]):
            inner = self.places.content[opening + size : closing].replace("\n", " ")
            if inner in (child.content, f" {child.content} "):
                return opening, closing + size
        return self._cursor, self._cursor

    def _html(self, content: str) -> None:
        at = self._find(content)
        self._cursor = at + len(content)
        scanned = embedded_html.scan(content)
        span = self.places.span(at, at + len(content))
        self.prose += scanned.text
        if scanned.text.strip():
            self._add(MARKS.sub(" ", scanned.text), at)
        self.images += [Seen(kind, span) for kind, _ in scanned.drawn]
        for href, _ in scanned.links:
            self.numbers += number_link("an HTML link", href, span)
            take(cited_by_link(href, span), self.scanned)

    def _link(self, href: str, before: str, at: int) -> None:
        text = " ".join(self.prose[len(before) :].split())
        span = self.places.span(at, at + len(text) + 2)
        self.numbers += number_link(text, href, span)
        self._targets.append(cited_by_link(href, span))
        if href.startswith("data:"):
            self.images.append(Seen("a `data:` link", span))
