"""The result of a repin: how each citation changed."""

from typing import Literal

import msgspec

from notelab.page.citation import format_citation

Kind = Literal["same", "moved", "reformatted", "edited", "gone"]


class Place(msgspec.Struct, frozen=True, order=True):
    """Lines of a file, from `start` to `end` inclusive."""

    path: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return the place as a citation."""
        return format_citation(self.path, self.start, self.end)


class CitationChange(msgspec.Struct):
    """A distinct citation: its old place, how it changed, and its new place or proposals.

    `new` is the place that may be written without a question (same, moved), else None. `proposals`
    come best first. `pages` are the files that cite the place, by their path from the repository.
    `alarm` is its rank in the order of review, from 1, or None if it need not be reviewed.
    """

    old: Place
    kind: Kind
    new: Place | None = None
    proposals: list[Place] = []
    pages: list[str] = []
    symbol: str = ""
    alarm: int | None = None
    reason: str = ""
    searched: str = ""  # of lines that are gone: where they were looked for


class NameChange(msgspec.Struct, frozen=True):
    """A name in code font on some pages that vanished from the whole tree or appeared in it."""

    name: str
    change: Literal["vanished", "appeared"]
    pages: list[str]


class RepinResult(msgspec.Struct):
    """The changes of a source between two commits."""

    source: str
    old_commit: str
    new_commit: str
    citations: list[CitationChange] = []
    names: list[NameChange] = []
