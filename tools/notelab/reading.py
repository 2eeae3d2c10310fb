"""Markdown in, `Note` out: what a page says, with the place of each thing in the file."""

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from notelab import embedded_html, front_matter, tokens
from notelab.citation import Citation, Span, in_plain_text, looks_like_citation, parse
from notelab.note import Cell, Diagram, Heading, Image, Note, NumberLink, Unread

if TYPE_CHECKING:
    from markdown_it.token import Token

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
# What looks like a space and is none to `str.split`: words may not hide behind it.
_BLANKS = dict.fromkeys((0x115F, 0x1160, 0x200B, 0x2800, 0x3164, 0xFFA0), " ")
_NAME = re.compile(r"[^\W\d]\w*")
_RESULTS = re.compile(r"(?:^|/)RESULTS(?:\.[a-z]{2})?\.md$")
_DIAGRAM_ID = re.compile(r"^%%\s*id:\s*(\S+)\s*$")
_MERMAID = re.compile(r"^(?:\{\s*)?\.?mermaid(?![\w-])", re.IGNORECASE)
_DRAWN_IN_DIAGRAM = re.compile(
    r"@\{[^}@]*\bimg[\"']?\s*:|<(?:img|image|svg)\b|\burl\(", re.IGNORECASE
)
# Emphasis takes quadratic time over one long paragraph, and quotations in quotations are not read
# beyond a depth: both are refused rather than waited for, or passed by unread.
_LONGEST, _DEEPEST = 10_000, 40


def read(text: str) -> Note:
    """Read a page's text (its line ends already `\\n`); never raises, whatever the text is."""
    from markdown_it import MarkdownIt

    yaml_text, taken = front_matter.split(text)
    front = front_matter.read(yaml_text, taken)
    lines = text.split("\n")
    # Blank lines in its place keep every row of the page the row of the file.
    body = "\n".join([""] * taken + lines[taken:])
    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table")
    unread: list[Unread] = []
    parser.core.ruler.after("block", "unread", lambda state: _set_aside(state.tokens, unread))
    walk = _Walk(parser.parse(body), body.split("\n"))
    walk.run()
    runs = tokens.packed(tokens.run_hashes(token for token, _ in tokens.of_page(text)))
    return Note(
        front=front,
        words=walk.words,
        choices=walk.choices,
        other=walk.other,
        headings=walk.finished_headings(),
        diagrams=walk.diagrams,
        numbers=walk.numbers,
        images=walk.images,
        runs=runs,
        unread=unread,
    )


def _set_aside(blocks: "list[Token]", unread: list[Unread]) -> None:
    """Empty each block that costs too much to read, and say so."""
    for block in blocks:
        if block.type == "inline" and len(block.content) > _LONGEST:
            size = f"a paragraph of {len(block.content):,} characters"
            unread.append(Unread(f"has {size}; at most {_LONGEST:,} are read", _block_span(block)))
            block.content = ""
        elif block.level >= _DEEPEST - 2 and block.nesting > 0:
            reason = f"nests lists and quotations over {_DEEPEST - 2} deep; not read"
            if not unread or unread[-1].reason != reason:
                unread.append(Unread(reason, _block_span(block)))


def count_words(prose: str) -> int:
    """Count whitespace-separated tokens that hold a letter or a digit."""
    return sum(1 for word in prose.translate(_BLANKS).split() if _LETTER_OR_DIGIT.search(word))


class _Walk:
    """One pass over the block tokens; a choice, paragraph or table row gathers what it holds."""

    def __init__(self, blocks: "list[Token]", lines: list[str]) -> None:
        self.blocks, self.lines = blocks, lines
        self.words = 0
        self.choices: list[Cell] = []
        self.other: list[Cell] = []
        self.headings: list[_OpenHeading] = []
        self.diagrams: list[Diagram] = []
        self.numbers: list[NumberLink] = []
        self.images: list[Image] = []
        self._choice: _OpenCell | None = None
        self._row: _OpenCell | None = None

    def run(self) -> None:
        in_heading = in_choices = False
        for block in self.blocks:
            if block.type == "heading_open" and block.level == 0:
                in_heading = True
                self.headings.append(_OpenHeading(int(block.tag[1:]), _block_span(block)))
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
            elif block.type == "tr_open":
                self._row = _OpenCell(_block_span(block))
            elif block.type == "tr_close" and self._row:
                self.other.append(self._row.closed())
                self._row = None
            elif block.type == "inline":
                self._inline(block, in_heading)
            elif block.type == "fence":
                self._fence(block)
            elif block.type == "code_block":
                self._say(block.content)
            elif block.type == "html_block":
                self._html(block)
            self._count_block(block)

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

    def finished_headings(self) -> list[Heading]:
        return [heading.closed() for heading in self.headings]

    def _inline(self, block: "Token", in_heading: bool) -> None:
        places = _Places(block, self.lines)
        cell = self._choice or self._row or _OpenCell(_block_span(block))
        gathered = _Inline(block.children or [], places)
        gathered.run()
        self.images += gathered.images
        self.numbers += gathered.numbers
        cell.citations += gathered.citations
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
        drawn = [line for line in text.split("\n") if line.strip() and not _is_comment(line)]
        row = (block.map[0] if block.map else 0) + 2
        self.diagrams.append(Diagram(named[1] if named else "", text, row, len(drawn)))
        for found in _DRAWN_IN_DIAGRAM.finditer(text):
            at = row + text.count("\n", 0, found.start())
            self.images.append(Image("an image in a diagram", Span(at, 1, at, 1)))

    def _html(self, block: "Token") -> None:
        scanned = embedded_html.scan(block.content)
        row = (block.map[0] if block.map else 0) + 1
        for kind, offset in scanned.drawn:
            self.images.append(Image(kind, _within(block.content, offset, row, len(kind))))
        for href, offset in scanned.links:
            self.numbers += number_link(
                "an HTML link", href, _within(block.content, offset, row, 2)
            )
        self._say(scanned.text)
        cell = self._choice or self._row or _OpenCell(_block_span(block))
        for text, _ in in_plain_text(scanned.text):
            cell.citations.append(not_in_code_font(text, _block_span(block)))
        if cell is not self._choice and cell is not self._row:
            self.other.append(cell.closed())

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


def number_link(text: str, href: str, span: Span) -> list[NumberLink]:
    """Return the link as a quoted number where it goes to a results page."""
    path, _, anchor = href.partition("#")
    path = path.partition("?")[0]
    return [NumberLink(text, path, anchor, span)] if _RESULTS.search(path) else []


def not_in_code_font(text: str, span: Span) -> Citation:
    """Return a citation that nobody would check, as it stands in plain text."""
    return Citation(text, "", text, 0, 0, "must stand in code font, between backticks", span)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("%%") and not line.lstrip().startswith("%%{")


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


class _OpenHeading:
    def __init__(self, level: int, span: Span) -> None:
        self.level, self.span = level, span
        self.text = self.prose = ""
        self.paragraphs = self.other_blocks = 0

    def closed(self) -> Heading:
        return Heading(
            self.level, self.text, self.span, self.paragraphs, self.other_blocks, self.prose
        )


class _Places:
    """Where a position in an inline token's content stands in the file."""

    def __init__(self, block: "Token", lines: list[str]) -> None:
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
        row, column = self._at(start)
        end_row, end_column = self._at(end)
        return Span(row, column, end_row, end_column)

    def _at(self, offset: int) -> tuple[int, int]:
        best = self._starts[
            max(bisect_right(self._starts, offset, key=lambda start: start[0]) - 1, 0)
        ]
        return best[1], best[2] + offset - best[0]


class _Inline:
    """Gathers prose, citations, names, number links and images of one inline token."""

    def __init__(self, children: "list[Token]", places: _Places) -> None:
        self.children, self.places = children, places
        self.prose = self.opening_bold = ""
        self.citations: list[Citation] = []
        self.names: list[str] = []
        self.numbers: list[NumberLink] = []
        self.images: list[Image] = []
        self._cursor = 0

    def run(self) -> None:
        link: tuple[str, str, int] | None = None
        for child in self.children:
            if child.type in ("text", "text_special"):
                self._text(child.content)
            elif child.type in ("softbreak", "hardbreak"):
                self.prose += "\n"
            elif child.type == "code_inline":
                self._code(child)
            elif child.type == "image":
                at = self._find("![")
                self.images.append(Image("an image", self.places.span(at, at + 2)))
            elif child.type == "html_inline":
                self._html(child.content)
            elif child.type == "link_open":
                self.prose += f" {child.attrs['title']} " if child.attrs.get("title") else ""
                link = (str(child.attrs.get("href", "")), self.prose, self._find("["))
            elif child.type == "link_close" and link:
                self._link(*link)
                link = None
        self.opening_bold = self._bold_at_the_start()

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
            title.append(child.content)
        said = "".join(title).strip()
        return said if count_words(said) else ""

    def _find(self, what: str) -> int:
        at = self.places.content.find(what, self._cursor)
        return at if at >= 0 else self._cursor

    def _text(self, said: str) -> None:
        self.prose += said
        at = self.places.content.find(said, self._cursor)
        for text, offset in in_plain_text(said):
            start = (at if at >= 0 else self._cursor) + offset
            span = self.places.span(start, start + len(text))
            self.citations.append(not_in_code_font(text, span))
        if at >= 0:
            self._cursor = at + len(said)

    def _code(self, child: "Token") -> None:
        start, end = self._code_place(child)
        self._cursor = end
        code = child.content.strip()
        if looks_like_citation(code):
            self.citations.append(parse(code, self.places.span(start, end)))
            self.prose += " "
        else:
            self.names += _NAME.findall(code)
            self.prose += child.content

    def _code_place(self, child: "Token") -> tuple[int, int]:
        """Find a code span's own place: the next run of its backticks that closes with its text."""
        content, at = self.places.content, self._cursor
        while (at := content.find(child.markup, at)) >= 0:
            close = content.find(child.markup, at + len(child.markup))
            if close < 0:
                break
            inner = content[at + len(child.markup) : close].replace("\n", " ")
            if inner in (child.content, f" {child.content} "):
                return at, close + len(child.markup)
            at += 1
        return self._cursor, self._cursor

    def _html(self, content: str) -> None:
        at = self._find(content)
        self._cursor = at + len(content)
        scanned = embedded_html.scan(content)
        span = self.places.span(at, at + len(content))
        self.prose += scanned.text
        self.images += [Image(kind, span) for kind, _ in scanned.drawn]
        for href, _ in scanned.links:
            self.numbers += number_link("an HTML link", href, span)

    def _link(self, href: str, before: str, at: int) -> None:
        text = " ".join(self.prose[len(before) :].split())
        span = self.places.span(at, at + len(text) + 2)
        self.numbers += number_link(text, href, span)
        if href.startswith("data:"):
            self.images.append(Image("a `data:` link", span))
