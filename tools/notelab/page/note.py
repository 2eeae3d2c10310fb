"""A note as data: what the rules need to know of a page, found once and kept by content."""

import msgspec

from notelab.page.citation import Citation, Span


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of prose that citations belong to: a top-level bullet, a paragraph, a table row.

    `names` are the identifiers that it gives in code font; one of them must anchor each citation.
    """

    span: Span
    title: str
    words: int
    citations: list[Citation]
    names: list[str]
    prose: str


class Heading(msgspec.Struct, array_like=True):
    """A heading and how much of the page stands under it, up to the next one."""

    level: int
    span: Span
    text: str = ""
    prose: str = ""
    paragraphs: int = 0
    other_blocks: int = 0


class Diagram(msgspec.Struct, frozen=True, array_like=True):
    """A mermaid block: `row` is the row of its first line in the note."""

    id: str
    text: str
    row: int
    lines: int


class NumberLink(msgspec.Struct, frozen=True, array_like=True):
    """A link into a results page: the quoted text and where it points."""

    text: str
    path: str
    anchor: str
    span: Span


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What stands at a place: what draws there, a hidden character, a part that wasn't read.

    Of that part it is the reason why: nothing is passed by in silence.
    """

    what: str
    span: Span


class FileLink(msgspec.Struct, frozen=True, array_like=True):
    """A permalink to a whole file or folder: where it leads, and where it stands."""

    text: str
    repository: str
    commit: str
    path: str
    span: Span


class Mention(msgspec.Struct, frozen=True, array_like=True):
    """A path with a line's number near by that is no citation; whether it is one, the tree says."""

    text: str
    path: str
    span: Span


class CommitPrefix(msgspec.Struct, frozen=True, array_like=True):
    """One row of the front matter's `commit` table."""

    source: str
    prefix: str
    span: Span


class FrontMatter(msgspec.Struct, frozen=True, array_like=True):
    """A note's front matter; `problem` says why it can't be used, or is empty."""

    problem: str
    span: Span
    title: str = ""
    commits: list[CommitPrefix] = []


class Waiver(msgspec.Struct, frozen=True, array_like=True):
    """Rules that the page asks to be spared, from row `first` to `last`, and why.

    `problem` says why it is none, or is empty.
    """

    codes: list[str]
    reason: str
    problem: str
    span: Span
    first: int
    last: int


class Note(msgspec.Struct, frozen=True, array_like=True):
    """All that is judged of a page."""

    front: FrontMatter
    words: int
    choices: list[Cell]
    other: list[Cell]
    headings: list[Heading]
    diagrams: list[Diagram]
    numbers: list[NumberLink]
    images: list[Seen]
    unread: list[Seen]
    waivers: list[Waiver]
    hidden: list[Seen]
    files: list[FileLink] = []
    mentions: list[Mention] = []

    @property
    def cells(self) -> list[Cell]:
        """Return every stretch of prose, choices first."""
        return [*self.choices, *self.other]

    @property
    def citations(self) -> list[Citation]:
        """Return every citation, in the order of the choices, then of the rest."""
        return [citation for cell in self.cells for citation in cell.citations]
