"""The citation: a code span ``[source:]path:L<first>[-L<last>]``, or one of its other forms."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

import msgspec

MAX_LINE = 10_000_000
_MAX_PATH = 400


# code: one code span; range: a further range of the same file; symbol: `path#name`; apart: path and
# lines side by side in text; address: a link to a code host; link: a link relative to the page;
# maybe: a code span that is a citation only if a source has its path.
Form = Literal["code", "range", "symbol", "apart", "address", "link", "maybe"]


_Item = TypeVar("_Item")


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A range of positions in a file: 1-based rows and columns; the end column is exclusive."""

    row: int
    column: int
    end_row: int
    end_column: int


def on_row(row: int, start: int, end: int) -> Span:
    """Return the span of a row between two offsets."""
    return Span(row, start + 1, row, end + 1)


class Citation(msgspec.Struct, frozen=True, array_like=True):
    """A citation as a note has it. `problem` says why it is malformed, or is empty.

    `first` and `last` are 0 until the lines of a `symbol` are looked up. `path` is as written until
    the tree of the source tells which file it is (book/settling.py).
    """

    text: str
    source: str
    path: str
    first: int
    last: int
    problem: str
    span: Span
    repository: str = ""  # of a permalink: its host and path there
    commit: str = ""  # of a permalink: the commit, the first digits of it, or a tag
    tag: str = ""  # of a permalink: the tag that was replaced by `commit`
    symbol: str = ""  # of `path#symbol`, which gives no lines
    relative: bool = False  # a link whose path is relative to the page
    label: str = ""  # of a link: the place that its label cites, if it differs from the target
    form: Form = "code"
    by_symbol: bool = False  # the lock knows it by its symbol, because its source changes

    @property
    def key(self) -> str:
        """The citation in its full written form, with the source's name if the citation has it."""
        return self.text if self.repository else self.key_in(self.source)

    def key_in(self, source: str) -> str:
        """The citation as the lock of `source` writes it; one without a source has no prefix."""
        lines = format_citation(self.path, self.first, self.last)
        citation = f"{self.path}#{self.symbol}" if self.by_symbol else lines
        return f"{source}:{citation}" if self.source or self.repository else citation


def format_citation(path: str, first: int, last: int) -> str:
    """Return a citation as a note writes it.

    >>> format_citation("a/b.py", 3, 3), format_citation("a/b.py", 3, 5)
    ('a/b.py:L3', 'a/b.py:L3-L5')
    """
    return f"{path}:L{first}" if first == last else f"{path}:L{first}-L{last}"


def group_ranges(
    citations: Iterable[_Item], get_form: Callable[[_Item], Form]
) -> list[list[_Item]]:
    """Return each citation together with the ranges that follow its path."""
    groups: list[list[_Item]] = []
    for each in citations:
        if groups and get_form(each) == "range":
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def parse_line_number(digits: str | None) -> int:
    """Return the number of a line; of very many digits, a number above `MAX_LINE`.

    `int()` is slow for thousands of digits and raises an error from 4,300 digits on.
    """
    if digits is None:
        return 0
    return int(digits) if len(digits) <= 8 else MAX_LINE + 1


def path_problem(path: str) -> str:
    """Return why a path cannot be cited, or ''; the tree of a source tells whether it exists."""
    parts = path.split("/")
    if path.startswith("/"):
        return "must give its path from the cited repository's root, without a slash before it"
    if "\\" in path:
        return "contains a backslash, which can't be cited; write `/` between folders"
    if ".." in parts or "." in parts or "" in parts:
        return "must give a plain path, without `.`, `..` or empty parts"
    if any(ord(ch) < 32 or ord(ch) == 127 for ch in path):
        return "has a path with a control character, which can't be cited"
    if len(path) > _MAX_PATH:
        return f"has a path longer than {_MAX_PATH} characters, which can't be cited"
    return ""
