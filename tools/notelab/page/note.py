"""A note as data: what the rules need to know of a page, read once and cached by content."""

import msgspec

from notelab.page.citation import Citation, Span


class ProseBlock(msgspec.Struct, frozen=True, array_like=True):
    """Prose that citations belong to: a top-level bullet, a paragraph or a table row.

    `names` are the identifiers that it gives in code font; one of them must anchor each citation.
    """

    span: Span
    title: str
    words: int
    citations: list[Citation]
    names: list[str]
    prose: str


class Heading(msgspec.Struct, array_like=True):
    """A heading, and the text and blocks of its section up to the next heading."""

    level: int
    span: Span
    text: str = ""
    prose: str = ""
    paragraphs: int = 0
    other_blocks: int = 0


class Diagram(msgspec.Struct, frozen=True, array_like=True):
    """A mermaid block; `row` is the row of its first line in the note."""

    id: str
    text: str
    row: int
    lines: int


class NumberLink(msgspec.Struct, frozen=True, array_like=True):
    """A link to a results page: the quoted text, and where the link points."""

    text: str
    path: str
    anchor: str
    span: Span


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """A position with a description of what is there.

    It is a thing that draws, a hidden character, or a part that was not read; of that part, the
    description is the reason.
    """

    description: str
    span: Span


class FileLink(msgspec.Struct, frozen=True, array_like=True):
    """A permalink to a whole file or folder: its target, and its position in the page."""

    text: str
    repository: str
    commit: str
    path: str
    span: Span


class Mention(msgspec.Struct, frozen=True, array_like=True):
    """A path near a line number that is no citation; the source's tree decides if it is one."""

    text: str
    path: str
    span: Span


class Quotation(msgspec.Struct, frozen=True, array_like=True):
    """A fenced block directly after a paragraph with citations.

    `citations` are the positions of these citations. `ends_with_citation` says that no word follows
    the last one.
    """

    text: str
    language: str
    span: Span
    citations: list[Span]
    ends_with_citation: bool


class CommitPrefix(msgspec.Struct, frozen=True, array_like=True):
    """A row of the front matter's `commit` table."""

    source: str
    prefix: str
    span: Span


class FrontMatter(msgspec.Struct, frozen=True, array_like=True):
    """A note's front matter; `problem` says why it cannot be used, or is empty."""

    problem: str
    span: Span
    title: str = ""
    commits: list[CommitPrefix] = []


class Waiver(msgspec.Struct, frozen=True, array_like=True):
    """Rules that the page asks to waive in the rows `first` to `last`, and the reason.

    `problem` says why the waiver is not valid, or is empty.
    """

    codes: list[str]
    reason: str
    problem: str
    span: Span
    first: int
    last: int


class Note(msgspec.Struct, frozen=True, array_like=True):
    """All of a page that rules check."""

    front: FrontMatter
    words: int = 0
    choices: list[ProseBlock] = []
    outside_choices: list[ProseBlock] = []
    headings: list[Heading] = []
    diagrams: list[Diagram] = []
    numbers: list[NumberLink] = []
    images: list[Marker] = []
    unread: list[Marker] = []
    waivers: list[Waiver] = []
    hidden: list[Marker] = []
    files: list[FileLink] = []
    mentions: list[Mention] = []
    quotations: list[Quotation] = []

    @property
    def blocks(self) -> list[ProseBlock]:
        """Return all blocks of prose: the choices, then the rest."""
        return [*self.choices, *self.outside_choices]

    @property
    def citations(self) -> list[Citation]:
        """Return all citations: those of the choices, then the rest; no code that may be one."""
        return [each for block in self.blocks for each in block.citations if each.form != "maybe"]
