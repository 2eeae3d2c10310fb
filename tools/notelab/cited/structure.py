"""The structure of a file while it is being read: symbols, statements and parts of statements.

Readers see more than whole statements as a unit: a header, a decorator, a branch, an entry of a
literal, an argument, or a paragraph of a comment or docstring. Such parts are collected in
`groups`, each a list of neighbours in order. A range fits if it begins with one part of a group and
ends with that part or a later one of the same group. If the parts counted as starts and ends
independently, far too many ranges would pass.
"""

import re
from collections.abc import Iterable

import msgspec

FUNCTION, CLASS = "function", "class"
Rows = tuple[int, int]  # first and last line, 1-based, inclusive
_BARE_COMMENT = re.compile(r"[#/*!\s]*\Z")
_QUOTES = re.compile(r"""[rRbBuUfF]{0,2}(?:\"{3}|'{3})\Z""")
_AFTER_ELEMENT = re.compile(r"[\])},;:\s]*(?:#.*|//.*|/\*.*\*/\s*)?\Z")


class Symbol(msgspec.Struct, frozen=True, array_like=True):
    """A function or class, from the `first` line of its comment to its `last` line.

    `top` is the line of its first decorator and `line` that of its `def` or `class`. `parent` is
    the index of the enclosing symbol, or -1.
    """

    name: str
    kind: str
    first: int
    top: int
    line: int
    last: int
    parent: int


class Structure:
    """Collects what a reader of one language finds in a file."""

    def __init__(self, lines: list[str], comments: set[int]) -> None:
        """Start from the file's lines and the rows that hold only a comment."""
        self.lines, self.comments = lines, comments
        self.symbols: list[Symbol] = []
        self.starts: set[int] = set()
        self.ends: set[int] = set()
        self.statements: list[Rows] = []
        self.groups: list[list[Rows]] = []
        self._add_comment_blocks()

    def add_statement(self, top: int, line: int, last: int) -> int:
        """Add a statement whose decorators begin at `top`; return the first row of its comment."""
        comment = self.comment_above(top)
        self.starts |= {line, top, comment}
        self.ends.add(last)
        self.statements.append((top, last))
        return comment

    def comment_above(self, row: int) -> int:
        """Return the first row of the comment directly above a row, or the row itself."""
        while row - 1 in self.comments:
            row -= 1
        return row

    def add_group(self, parts: Iterable[Rows]) -> None:
        """Add neighbours that may be cited alone or together."""
        neighbours = list(parts)
        if neighbours:
            self.groups.append(neighbours)

    def add_elements(self, places: Iterable[tuple[int, int, int, int]]) -> None:
        """Add the elements of a list, each given as (row, column, end row, end column).

        Columns are 0-based and count bytes of UTF-8, as parsers count them. An element is citable
        by line only if nothing else stands on its lines.
        """
        run: list[Rows] = []
        for row, column, end_row, end_column in places:
            before = self.split_line(row, column)[0].strip(" \t*&")
            after = self.split_line(end_row, end_column)[1]
            if not before and _AFTER_ELEMENT.match(after):
                run.append((row, end_row))
            else:
                self.add_group(run)
                run = []
        self.add_group(run)

    def split_line(self, row: int, offset: int) -> tuple[str, str]:
        """Return the text of a line before and after its first `offset` bytes."""
        line = self.lines[row - 1] if row <= len(self.lines) else ""
        at = offset if line.isascii() else len(line.encode()[:offset].decode("utf-8", "ignore"))
        return line[:at], line[at:]

    def add_paragraphs(self, first: int, last: int) -> None:
        """Add a docstring's paragraphs, which blank lines or another indentation separate."""
        parts: list[Rows] = []
        indent: int | None = None
        for row in range(first, last + 1):
            text = self.lines[row - 1]
            stripped = text.strip()
            row_indent = len(text) - len(text.lstrip())
            if not stripped:
                indent = None
            elif indent == row_indent and not _QUOTES.match(stripped):
                parts[-1] = (parts[-1][0], row)
            else:
                parts.append((row, row))
                indent = None if _QUOTES.match(stripped) else row_indent
        self.add_group(parts)

    def _add_comment_blocks(self) -> None:
        """Add the paragraphs of each comment block, which empty comment lines separate."""
        parts: list[Rows] = []
        previous = 0
        for row in sorted(self.comments):
            if row != previous + 1:
                self.add_group(parts)
                parts = []
            bare = _BARE_COMMENT.match(self.lines[row - 1])
            if not bare:
                joined = bool(parts) and parts[-1][1] == row - 1
                parts[len(parts) - joined :] = [(parts[-1][0] if joined else row, row)]
            previous = row
        self.add_group(parts)
