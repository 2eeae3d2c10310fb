"""The structure of a file in the making: symbols, statements, and the parts a reader may cite.

Besides whole statements a reader takes for a unit: a header, a decorator, a branch, an entry of a
literal, an argument, a paragraph of a comment or docstring. Such parts come in `groups`, each a
list of neighbours from the first to the last; a range fits that runs from one to itself or a later
one of its group. Taken as starts and ends of their own they would let far too many ranges pass.
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
    """A function or class, from the `first` line of its comment to its `last`.

    `top` is the line of its first decorator, `line` that of its `def` or `class`; `parent` is the
    index of the enclosing symbol, or -1.
    """

    name: str
    kind: str
    first: int
    top: int
    line: int
    last: int
    parent: int


class Structure:
    """What a reader of one language fills in."""

    def __init__(self, lines: list[str], comments: set[int]) -> None:
        """Take the file's lines and the rows that hold a comment and nothing else."""
        self.lines, self.comments = lines, comments
        self.symbols: list[Symbol] = []
        self.starts: set[int] = set()
        self.ends: set[int] = set()
        self.statements: list[Rows] = []
        self.groups: list[list[Rows]] = []
        self._comment_blocks()

    def statement(self, top: int, line: int, last: int) -> int:
        """Take a statement with decorators from `top` on; return the row its comment begins at."""
        comment = self.comment_above(top)
        self.starts |= {line, top, comment}
        self.ends.add(last)
        self.statements.append((top, last))
        return comment

    def comment_above(self, row: int) -> int:
        """Return the first row of the comment directly above a row, or that row."""
        while row - 1 in self.comments:
            row -= 1
        return row

    def group(self, parts: Iterable[Rows]) -> None:
        """Take neighbours that may be cited alone or together."""
        kept = list(parts)
        if kept:
            self.groups.append(kept)

    def elements(self, places: Iterable[tuple[int, int, int, int]]) -> None:
        """Take the elements of a list, each (row, column, end row, end column).

        Columns are 0-based, in bytes of UTF-8, as parsers count them. Only elements that have their
        lines to themselves can be cited by line.
        """
        run: list[Rows] = []
        for row, column, end_row, end_column in places:
            before = self.parted(row, column)[0].strip(" \t*&")
            after = self.parted(end_row, end_column)[1]
            if not before and _AFTER_ELEMENT.match(after):
                run.append((row, end_row))
            else:
                self.group(run)
                run = []
        self.group(run)

    def parted(self, row: int, offset: int) -> tuple[str, str]:
        """Return a line's text before and after so many bytes."""
        line = self.lines[row - 1] if row <= len(self.lines) else ""
        at = offset if line.isascii() else len(line.encode()[:offset].decode("utf-8", "ignore"))
        return line[:at], line[at:]

    def paragraphs(self, first: int, last: int) -> None:
        """Take the paragraphs of a docstring: parted by blank lines and by another indentation."""
        parts: list[Rows] = []
        indent: int | None = None
        for row in range(first, last + 1):
            text = self.lines[row - 1]
            said = text.strip()
            mine = len(text) - len(text.lstrip())
            if not said:
                indent = None
            elif indent == mine and not _QUOTES.match(said):
                parts[-1] = (parts[-1][0], row)
            else:
                parts.append((row, row))
                indent = None if _QUOTES.match(said) else mine
        self.group(parts)

    def _comment_blocks(self) -> None:
        """A comment block is parted by its empty comment lines."""
        parts: list[Rows] = []
        previous = 0
        for row in sorted(self.comments):
            if row != previous + 1:
                self.group(parts)
                parts = []
            bare = _BARE_COMMENT.match(self.lines[row - 1])
            if not bare:
                joined = bool(parts) and parts[-1][1] == row - 1
                parts[len(parts) - joined :] = [(parts[-1][0] if joined else row, row)]
            previous = row
        self.group(parts)
