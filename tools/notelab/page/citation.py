"""The citation: a code span ``[source:]path:L<first>[-L<last>]``, or another form of the same."""

import msgspec

LAST_LINE_EVER = 10_000_000
_LONGEST_PATH = 400


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of a file: 1-based rows and columns, the end column exclusive."""

    row: int
    column: int
    end_row: int
    end_column: int


class Citation(msgspec.Struct, frozen=True, array_like=True):
    """A citation as it stands in a note. `problem` says why it is malformed, or is empty.

    `first` and `last` are 0 until the lines of a `symbol` are looked up, and `path` is as written
    until the tree of the source says which file it is (book/settling.py).
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
    tag: str = ""  # of a permalink whose commit was put in the place of a tag
    symbol: str = ""  # in place of lines: `path#symbol`
    relative: bool = False  # a link whose path runs from the page
    label: str = ""  # of a link: the other place that its label cites

    @property
    def key(self) -> str:
        """The citation in its full written form, with the source's name where it gives one."""
        return self.text if self.repository else self.key_in(self.source)

    def key_in(self, source: str) -> str:
        """The citation as the lock of `source` knows it; only a bare one goes without a source."""
        bare = written(self.path, self.first, self.last)
        return f"{source}:{bare}" if self.source or self.repository else bare


def written(path: str, first: int, last: int) -> str:
    """Write a citation the way a note does.

    >>> written("a/b.py", 3, 3), written("a/b.py", 3, 5)
    ('a/b.py:L3', 'a/b.py:L3-L5')
    """
    return f"{path}:L{first}" if first == last else f"{path}:L{first}-L{last}"


def number(digits: str | None) -> int:
    """Read a line's number: `int()` of thousands of digits is slow, and refused from 4,300 on."""
    if digits is None:
        return 0
    return int(digits) if len(digits) <= 8 else LAST_LINE_EVER + 1


def path_problem(path: str) -> str:
    """Say why a path can't be cited, or return ''; whether a source has it, its tree says."""
    parts = path.split("/")
    if path.startswith("/"):
        return "must give its path from the cited repository's root, without a slash before it"
    if "\\" in path:
        return "holds a backslash; write `/` between folders (no name with a backslash is cited)"
    if ".." in parts or "." in parts or "" in parts:
        return "must give a plain path, without `.`, `..` or empty parts"
    if any(ord(ch) < 32 or ord(ch) == 127 for ch in path):
        return "holds a control character in its path, and no such path is cited"
    if len(path) > _LONGEST_PATH:
        return f"has a path longer than {_LONGEST_PATH} characters, and no such path is cited"
    return ""
