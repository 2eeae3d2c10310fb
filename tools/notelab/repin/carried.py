"""What became of each citation when its source moved to another commit."""

from typing import Literal

import msgspec

from notelab.page.citation import format_citation

Kind = Literal["same", "moved", "reformatted", "edited", "gone"]


class Place(msgspec.Struct, frozen=True, order=True):
    """Lines of a file, from `start` to `end`, both counted."""

    path: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return it as a citation is written."""
        return format_citation(self.path, self.start, self.end)


class Carried(msgspec.Struct):
    """One distinct citation: where it stood, where it stands now, what else it may have become.

    `new` is what may be written without asking (same, moved), else None; `proposals` come best
    first. `pages` are the files that cite it, from the repository; `alarm` is its place in the
    order of reading again, 1 first, None where nothing need be read.
    """

    old: Place
    kind: Kind
    new: Place | None = None
    proposals: list[Place] = []
    pages: list[str] = []
    symbol: str = ""
    alarm: int | None = None
    reason: str = ""


class ChangedName(msgspec.Struct, frozen=True):
    """A name in code font on some pages, that vanished from or appeared in the whole tree."""

    name: str
    change: Literal["vanished", "appeared"]
    pages: list[str]


class Repin(msgspec.Struct):
    """A source carried from one commit to another."""

    source: str
    old_commit: str
    new_commit: str
    citations: list[Carried] = []
    names: list[ChangedName] = []
