"""Markdown in, `Note` out: what a page says, with the place of each thing in the file."""

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from notelab import front_matter, tokens
from notelab.citation import Citation, Span, looks_like_citation, parse
from notelab.note import Cell, Diagram, Heading, Image, Note, NumberLink

if TYPE_CHECKING:
    from markdown_it.token import Token

_WORD = re.compile(r"\S*[^\W_]\S*")
_NAME = re.compile(r"[^\W\d]\w*")
_RESULTS = re.compile(r"(?:^|/)RESULTS(?:\.[a-z]{2})?\.md$")
_DIAGRAM_ID = re.compile(r"^%%\s*id:\s*(\S+)\s*$")
_DRAWN = {"img", "svg", "picture", "canvas", "object", "embed", "iframe", "video", "image"}


def read(text: str) -> Note:
    """Read a page's text (its line ends already `\\n`); never raises, whatever the text is."""
    from markdown_it import MarkdownIt

    yaml_text, taken = front_matter.split(text)
    front = front_matter.read(yaml_text, taken)
    lines = text.split("\n")
    # Blank lines in its place keep every row of the page the row of the file.
    body = "\n".join([""] * taken + lines[taken:])
    parser = MarkdownIt("commonmark", {"maxNesting": 40}).enable("table")
    walk = _Walk(parser.parse(body), body.split("\n"))
    walk.run()
    runs = tokens.packed(tokens.run_hashes(token for token, _ in tokens.of_page(body)))
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
    )


def count_words(prose: str) -> int:
    """Count whitespace-separated tokens that hold a letter or a digit."""
    return len(_WORD.findall(prose))


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
            if block.type == "heading_open":
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
            elif block.type == "html_block":
                self._html(block)
            self._count_block(block)

    def _count_block(self, block: "Token") -> None:
        if block.level == 0 and self.headings and not block.type.startswith("heading"):
            if block.type == "paragraph_open":
                self.headings[-1].paragraphs += 1
            elif block.type.endswith("_open") or block.type in ("fence", "code_block", "hr"):
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
        info = block.info.strip().split(maxsplit=1)
        if not info or info[0].lower() != "mermaid":
            return
        text = block.content
        first = text.split("\n", 1)[0].strip()
        named = _DIAGRAM_ID.match(first)
        drawn = [line for line in text.split("\n") if line.strip() and not _is_comment(line)]
        row = (block.map[0] if block.map else 0) + 2
        self.diagrams.append(Diagram(named[1] if named else "", text, row, len(drawn)))

    def _html(self, block: "Token") -> None:
        reader = _Html()
        reader.feed(block.content)
        reader.close()
        row = (block.map[0] if block.map else 0) + 1
        for tag, (line, column) in reader.drawn:
            at = row + line - 1
            self.images.append(Image(f"<{tag}>", Span(at, column + 1, at, column + 2 + len(tag))))
        self.words += count_words(reader.text)


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
        best = self._starts[0]
        for start in self._starts:
            if start[0] > offset:
                break
            best = start
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
                self.prose += child.content
                self._advance(child.content)
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
                link = (str(child.attrs.get("href", "")), self.prose, self._find("["))
            elif child.type == "link_close" and link:
                self._link(*link)
                link = None
        self.opening_bold = self._bold_at_the_start()

    def _bold_at_the_start(self) -> str:
        kinds = [child.type for child in self.children if child.content or child.type != "text"]
        if not kinds or kinds[0] != "strong_open":
            return ""
        children = iter(child for child in self.children if child.content or child.nesting)
        next(children)
        title = []
        for child in children:
            if child.type == "strong_close":
                break
            title.append(child.content)
        return "".join(title).strip()

    def _find(self, what: str) -> int:
        at = self.places.content.find(what, self._cursor)
        return at if at >= 0 else self._cursor

    def _advance(self, what: str) -> None:
        at = self.places.content.find(what, self._cursor)
        if at >= 0:
            self._cursor = at + len(what)

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
        reader = _Html()
        reader.feed(content)
        for tag, _ in reader.drawn:
            self.images.append(Image(f"<{tag}>", self.places.span(at, at + len(content))))

    def _link(self, href: str, before: str, at: int) -> None:
        path, _, anchor = href.partition("#")
        text = " ".join(self.prose[len(before) :].split())
        if _RESULTS.search(path):
            span = self.places.span(at, at + len(text) + 2)
            self.numbers.append(NumberLink(text, path, anchor, span))


class _Html(HTMLParser):
    """The words and the drawn images of a piece of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[str, tuple[int, int]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that draws."""
        if tag in _DRAWN:
            self.drawn.append((tag, self.getpos()))

    def handle_data(self, data: str) -> None:
        """Keep the words."""
        self.text += data
