"""Markdown in, `Note` out: what a page says, with the place of each thing in the file."""

import re
from typing import TYPE_CHECKING

from notelab.page import admonition, embedded_html, front_matter, hidden, waiver
from notelab.page.citation import Citation, Span
from notelab.page.inline import Inline, Places, cited_by_link, count_words, number_link, take
from notelab.page.note import Cell, Diagram, FileLink, Heading, Mention, Note, NumberLink, Seen
from notelab.page.scanner import MARKS, Scanned, scan

if TYPE_CHECKING:
    from markdown_it.token import Token

_DIAGRAM_ID = re.compile(r"^%%\s*id:\s*(\S+)\s*$")
_COMMENT = re.compile(r"\s*%%(?!\{)")
_MERMAID = re.compile(r"^(?:\{\s*)?\.?mermaid(?![\w-])", re.IGNORECASE)
_DRAWN_IN_DIAGRAM = re.compile(
    r"@\{[^}@]*\bimg[\"']?\s*:|<(?:img|image|svg)\b|\burl\(", re.IGNORECASE
)
# Emphasis takes quadratic time over one long paragraph, and quotations in quotations are not read
# beyond a depth: both are refused rather than waited for, or passed by unread.
_LONGEST, _DEEPEST = 10_000, 40
# And so is what a page has beyond this sum of its paragraphs' squared lengths, which is what some
# of them cost to read: fifteen times what the longest page of this workbook needs.
_PAGE = 300_000_000


def read(text: str) -> Note:
    """Read a page's text (its line ends already `\\n`); never raises, whatever the text is."""
    from markdown_it import MarkdownIt

    yaml_text, taken = front_matter.split(text)
    front = front_matter.read(yaml_text, taken)
    lines = text.split("\n")
    # Blank lines in its place keep every row of the page the row of the file.
    body = "\n".join([""] * taken + lines[taken:])
    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table")
    parser.use(admonition.plugin).use(admonition.footnotes)
    unread: list[Seen] = []
    parser.core.ruler.after("block", "unread", lambda state: _set_aside(state.tokens, unread))
    blocks = parser.parse(body)
    walk = _Walk(blocks, body.split("\n"))
    walk.run()
    cited, files = front_matter.cited(lines[:taken])
    return Note(
        front=front,
        words=walk.words,
        choices=walk.choices,
        other=walk.other + cited,
        headings=walk.headings,
        diagrams=walk.diagrams,
        numbers=walk.numbers,
        images=walk.images,
        unread=unread,
        waivers=list(waiver.of_page(blocks, walk.lines)),
        hidden=hidden.found_in(text),
        files=walk.files + files,
        mentions=walk.mentions,
    )


def _set_aside(blocks: "list[Token]", unread: list[Seen]) -> None:
    """Empty each block that costs too much to read, and say so."""
    spent = 0
    for block in blocks:
        size = len(block.content) if block.type == "inline" else 0
        spent += size * size if size <= _LONGEST else 0
        if size > _LONGEST:
            said = f"has a paragraph of {size:,} characters; at most {_LONGEST:,} are read"
            unread.append(Seen(said, _block_span(block)))
            block.content = ""
        elif size and spent > _PAGE:
            if spent - size * size <= _PAGE:
                said = "has more long paragraphs than are read; this one and the rest are not"
                unread.append(Seen(said, _block_span(block)))
            block.content = ""
        elif block.level >= _DEEPEST - 2 and block.nesting > 0:
            reason = f"nests lists and quotations over {_DEEPEST - 2} deep; not read"
            if not unread or unread[-1].what != reason:
                unread.append(Seen(reason, _block_span(block)))


class _Walk:
    """One pass over the block tokens; a choice, paragraph or table row gathers what it holds."""

    def __init__(self, blocks: "list[Token]", lines: list[str]) -> None:
        self.blocks, self.lines = blocks, lines
        self.words = 0
        self.choices: list[Cell] = []
        self.other: list[Cell] = []
        self.headings: list[Heading] = []
        self.diagrams: list[Diagram] = []
        self.numbers: list[NumberLink] = []
        self.images: list[Seen] = []
        self.files: list[FileLink] = []
        self.mentions: list[Mention] = []
        self._choice: _OpenCell | None = None
        self._row: _OpenCell | None = None

    def run(self) -> None:
        in_heading = in_choices = False
        for block in self.blocks:
            if block.type == "heading_open" and block.level == 0:
                in_heading = True
                self.headings.append(Heading(int(block.tag[1:]), _block_span(block)))
            elif block.type == "heading_close":
                in_heading = False
            elif block.type == "bullet_list_open" and block.level == 0:
                in_choices = block.markup == "-"
            elif block.type == "list_item_open" and block.level == 1 and in_choices:
                self._choice = _OpenCell(_block_span(block))
            elif block.type == "list_item_close" and block.level == 1 and self._choice:
                self.choices.append(self._choice.closed())
                self._choice = None
            elif block.type == "bullet_list_close" and block.level == 0:
                in_choices = False
            elif block.type == "inline":
                self._inline(block, in_heading)
            else:
                self._other_block(block)
            self._count_block(block)

    def _other_block(self, block: "Token") -> None:
        if block.type == "tr_open":
            self._row = _OpenCell(_block_span(block))
        elif block.type == "tr_close" and self._row:
            self.other.append(self._row.closed())
            self._row = None
        elif block.type == "fence":
            self._fence(block)
        elif block.type == "code_block":
            self._say(block.content)
        elif block.type == "html_block":
            self._html(block)

    def _count_block(self, block: "Token") -> None:
        if block.level == 0 and self.headings and not block.type.startswith("heading"):
            if block.type == "paragraph_open":
                self.headings[-1].paragraphs += 1
            elif (
                block.type.endswith("_open")
                or block.type in ("fence", "code_block", "hr")
                or (block.type == "html_block" and _shows_something(block.content))
            ):
                self.headings[-1].other_blocks += 1

    def _inline(self, block: "Token", in_heading: bool) -> None:
        places = Places(block, self.lines)
        cell = self._choice or self._row or _OpenCell(_block_span(block))
        gathered = Inline(block.children or [], places)
        gathered.run()
        self.images += gathered.images
        self.numbers += gathered.numbers
        self._take(gathered.scanned, cell)
        cell.names += gathered.names
        if in_heading:
            self.headings[-1].text = " ".join(gathered.prose.split())
        else:
            if self._choice and not cell.started:
                cell.title = gathered.opening_bold
            cell.prose += gathered.prose + "\n"
            self.words += count_words(gathered.prose)
            if self.headings:
                self.headings[-1].prose += gathered.prose + "\n"
        cell.started = True
        if cell is not self._choice and cell is not self._row:
            self.other.append(cell.closed())

    def _fence(self, block: "Token") -> None:
        if not _MERMAID.match(block.info.strip()):
            return
        text = block.content
        first = text.split("\n", 1)[0].strip()
        named = _DIAGRAM_ID.match(first)
        drawn = [line for line in text.split("\n") if line.strip() and not _COMMENT.match(line)]
        row = (block.map[0] if block.map else 0) + 2
        self.diagrams.append(Diagram(named[1] if named else "", text, row, len(drawn)))
        for found in _DRAWN_IN_DIAGRAM.finditer(text):
            at = row + text.count("\n", 0, found.start())
            self.images.append(Seen("an image in a diagram", Span(at, 1, at, 1)))

    def _html(self, block: "Token") -> None:
        scanned = embedded_html.scan(block.content)
        cell = self._choice or self._row or _OpenCell(_block_span(block))
        row = (block.map[0] if block.map else 0) + 1
        for kind, offset in scanned.drawn:
            self.images.append(Seen(kind, _within(block.content, offset, row, len(kind))))
        said = scan(MARKS.sub(" ", scanned.text), lambda start, end: _block_span(block))
        for href, offset in scanned.links:
            place = _within(block.content, offset, row, 2)
            self.numbers += number_link("an HTML link", href, place)
            take(cited_by_link(href, place), said)
        self._say(scanned.text)
        self._take(said, cell)
        if cell is not self._choice and cell is not self._row:
            self.other.append(cell.closed())

    def _take(self, scanned: Scanned, cell: "_OpenCell") -> None:
        cell.citations += scanned.citations
        self.files += scanned.files
        self.mentions += scanned.mentions

    def _say(self, prose: str) -> None:
        """Count words that stand in no paragraph."""
        self.words += count_words(prose)
        if self._choice:
            self._choice.prose += prose + "\n"


def _shows_something(piece: str) -> bool:
    scanned = embedded_html.scan(piece)
    return bool(scanned.text.strip() or scanned.drawn)


def _within(piece: str, offset: int, row: int, length: int) -> Span:
    row += piece.count("\n", 0, offset)
    column = offset - piece.rfind("\n", 0, offset)
    return Span(row, column, row, column + length)


def _block_span(block: "Token") -> Span:
    first, end = block.map or [0, 1]
    return Span(first + 1, 1, max(end, first + 1), 1)


class _OpenCell:
    def __init__(self, span: Span) -> None:
        self.span, self.title, self.prose, self.started = span, "", "", False
        self.citations: list[Citation] = []
        self.names: list[str] = []

    def closed(self) -> Cell:
        names = list(dict.fromkeys(self.names))
        words = count_words(self.prose)
        return Cell(self.span, self.title, words, self.citations, names, self.prose)
