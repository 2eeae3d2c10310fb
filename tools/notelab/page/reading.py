"""Reads Markdown into a `Note`: what a page says, with the position of each thing in the file."""

import re
from typing import TYPE_CHECKING

import msgspec

from notelab.page import admonition, embedded_html, front_matter, waiver
from notelab.page.citation import Citation, Span
from notelab.page.inline import (
    Inline,
    PositionMap,
    add_link_target,
    count_words,
    number_link,
    parse_link_target,
)
from notelab.page.note import Diagram, FrontMatter, Heading, Marker, Note, ProseBlock, Quotation
from notelab.page.scanner import MARKS, ScannedText, scan_text

if TYPE_CHECKING:
    from markdown_it.token import Token
import unicodedata

_DIAGRAM_ID = re.compile(r"^%%\s*id:\s*(\S+)\s*$")
_COMMENT = re.compile(r"\s*%%(?!\{)")
_MERMAID = re.compile(r"^(?:\{\s*)?\.?mermaid(?![\w-])", re.IGNORECASE)
_IMAGE_IN_DIAGRAM = re.compile(
    r"@\{[^}@]*\bimg[\"']?\s*:|<(?:img|image|svg)\b|\burl\(", re.IGNORECASE
)
_AFTER_CITATION = " \n:.,;*_)>`"
# Emphasis takes quadratic time in the length of a paragraph, and quotations nested too deeply are
# not read. Pages that have either are refused.
_MAX_PARAGRAPH, _MAX_DEPTH = 10_000, 40
# The sum of the squared lengths of a page's paragraphs, an estimate of what they cost to read, is
# limited too. The limit is fifteen times what the longest page of this workbook needs.
_MAX_COST = 300_000_000


def read(text: str) -> Note:
    """Read a page's text, whose line ends are `\\n`; never raises an error."""
    from markdown_it import MarkdownIt

    yaml_text, front_matter_lines = front_matter.split(text)
    front = front_matter.read(yaml_text, front_matter_lines)
    lines = text.split("\n")
    # Blank lines replace the front matter, so that each row number is that of the file.
    body = "\n".join([""] * front_matter_lines + lines[front_matter_lines:])
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_DEPTH}).enable("table")
    parser.use(admonition.plugin).use(admonition.footnotes)
    unread: list[Marker] = []
    parser.core.ruler.after(
        "block", "unread", lambda state: _drop_costly_blocks(state.tokens, unread)
    )
    blocks = parser.parse(body)
    walk = _BlockWalk(blocks, body.split("\n"), front)
    walk.run()
    walk.note.unread.extend(unread)
    walk.note.waivers.extend(waiver.find_waivers(blocks, walk.lines))
    walk.note.hidden.extend(find_hidden_characters(text))
    front_blocks, front_files = front_matter.find_citations(lines[:front_matter_lines])
    walk.note.outside_choices.extend(front_blocks)
    walk.note.files.extend(front_files)
    return msgspec.structs.replace(walk.note, words=walk.words)


def _drop_costly_blocks(blocks: "list[Token]", unread: list[Marker]) -> None:
    """Empty each block that costs too much to read, and add a marker that says so."""
    cost = 0
    for block in blocks:
        size = len(block.content) if block.type == "inline" else 0
        cost += size * size if size <= _MAX_PARAGRAPH else 0
        if size > _MAX_PARAGRAPH:
            description = (
                f"has a paragraph of {size:,} characters; at most {_MAX_PARAGRAPH:,} are read"
            )
            unread.append(Marker(description, _block_span(block)))
            block.content = ""
        elif size and cost > _MAX_COST:
            if cost - size * size <= _MAX_COST:
                description = "has too many long paragraphs; this one and the rest are not read"
                unread.append(Marker(description, _block_span(block)))
            block.content = ""
        elif block.level >= _MAX_DEPTH - 2 and block.nesting > 0:
            reason = f"nests lists and quotations over {_MAX_DEPTH - 2} deep; not read"
            if not unread or unread[-1].description != reason:
                unread.append(Marker(reason, _block_span(block)))


class _BlockWalk:
    """One pass over the block tokens; it collects choices, paragraphs and table rows in a note."""

    def __init__(self, blocks: "list[Token]", lines: list[str], front: FrontMatter) -> None:
        self.blocks, self.lines = blocks, lines
        self.words = 0
        self.note = Note(front)
        self._choice: _BlockBuilder | None = None
        self._row: _BlockBuilder | None = None
        self._before: list[Citation] = []  # the citations of the paragraph directly before

    def run(self) -> None:
        in_heading = in_choices = False
        for block in self.blocks:
            if block.type == "heading_open" and block.level == 0:
                in_heading = True
                self.note.headings.append(Heading(int(block.tag[1:]), _block_span(block)))
            elif block.type == "heading_close":
                in_heading = False
            elif block.type == "bullet_list_open" and block.level == 0:
                in_choices = block.markup == "-"
            elif block.type == "list_item_open" and block.level == 1 and in_choices:
                self._choice = _BlockBuilder(_block_span(block))
            elif block.type == "list_item_close" and block.level == 1 and self._choice:
                self.note.choices.append(self._choice.build())
                self._choice = None
            elif block.type == "bullet_list_close" and block.level == 0:
                in_choices = False
            elif block.type == "inline":
                self._read_inline(block, in_heading)
            else:
                self._read_other_block(block)
            if block.type not in ("inline", "paragraph_close", "heading_close"):
                self._before = []
            self._count_block(block)

    def _read_other_block(self, block: "Token") -> None:
        if block.type == "tr_open":
            self._row = _BlockBuilder(_block_span(block))
        elif block.type == "tr_close" and self._row:
            self.note.outside_choices.append(self._row.build())
            self._row = None
        elif block.type == "fence":
            self._read_fence(block)
        elif block.type == "code_block":
            self._count_prose(block.content)
        elif block.type == "html_block":
            self._read_html(block)

    def _count_block(self, block: "Token") -> None:
        if block.level == 0 and self.note.headings and not block.type.startswith("heading"):
            if block.type == "paragraph_open":
                self.note.headings[-1].paragraphs += 1
            elif (
                block.type.endswith("_open")
                or block.type in ("fence", "code_block", "hr")
                or (block.type == "html_block" and _is_visible(block.content))
            ):
                self.note.headings[-1].other_blocks += 1

    def _read_inline(self, block: "Token", in_heading: bool) -> None:
        positions = PositionMap(block, self.lines)
        builder = self._choice or self._row or _BlockBuilder(_block_span(block))
        inline = Inline(block.children or [], positions)
        inline.run()
        self.note.images.extend(inline.images)
        self.note.numbers.extend(inline.numbers)
        self._add_targets(inline.scanned, builder)
        self._before = inline.scanned.citations
        builder.names += inline.names
        if in_heading:
            self.note.headings[-1].text = " ".join(inline.prose.split())
        else:
            if self._choice and not builder.has_text:
                builder.title = inline.opening_bold
            builder.prose += inline.prose + "\n"
            self.words += count_words(inline.prose)
            if self.note.headings:
                self.note.headings[-1].prose += inline.prose + "\n"
        builder.has_text = True
        if builder is not self._choice and builder is not self._row:
            self.note.outside_choices.append(builder.build())

    def _read_fence(self, block: "Token") -> None:
        if not _MERMAID.match(block.info.strip()):
            if self._before:
                self._add_quotation(block)
            return
        text = block.content
        first = text.split("\n", 1)[0].strip()
        id_match = _DIAGRAM_ID.match(first)
        content_lines = [
            line for line in text.split("\n") if line.strip() and not _COMMENT.match(line)
        ]
        row = (block.map[0] if block.map else 0) + 2
        self.note.diagrams.append(
            Diagram(id_match[1] if id_match else "", text, row, len(content_lines))
        )
        for match in _IMAGE_IN_DIAGRAM.finditer(text):
            image_row = row + text.count("\n", 0, match.start())
            span = Span(image_row, 1, image_row, 1)
            self.note.images.append(Marker("an image in a diagram", span))

    def _add_quotation(self, block: "Token") -> None:
        first, end = block.map or [0, 0]
        last = self._before[-1]
        before = "\n".join(self.lines[last.span.row - 1 : first]).rstrip(_AFTER_CITATION)
        written = str(last.last) if last.form == "apart" else last.text
        language = (block.info.split() or [""])[0].strip("{.}").lower()
        spans = [citation.span for citation in self._before]
        span, is_last = Span(first + 1, 1, end, 1), before.endswith(written.rstrip(_AFTER_CITATION))
        self.note.quotations.append(Quotation(block.content, language, span, spans, is_last))

    def _read_html(self, block: "Token") -> None:
        content = embedded_html.scan(block.content)
        builder = self._choice or self._row or _BlockBuilder(_block_span(block))
        row = (block.map[0] if block.map else 0) + 1
        self.note.images.extend(
            Marker(kind, _span_within(block.content, offset, row, len(kind)))
            for kind, offset in content.drawings
        )
        scanned_text = scan_text(
            MARKS.sub(" ", content.text), lambda start, end: _block_span(block)
        )
        for href, offset in content.links:
            span = _span_within(block.content, offset, row, 2)
            self.note.numbers.extend(number_link("an HTML link", href, span))
            add_link_target(parse_link_target(href, span), scanned_text)
        self._count_prose(content.text)
        self._add_targets(scanned_text, builder)
        if builder is not self._choice and builder is not self._row:
            self.note.outside_choices.append(builder.build())

    def _add_targets(self, scanned: ScannedText, builder: "_BlockBuilder") -> None:
        builder.citations += scanned.citations
        self.note.files.extend(scanned.files)
        self.note.mentions.extend(scanned.mentions)

    def _count_prose(self, prose: str) -> None:
        """Count the words of text outside of paragraphs."""
        self.words += count_words(prose)
        if self._choice:
            self._choice.prose += prose + "\n"


def _is_visible(piece: str) -> bool:
    content = embedded_html.scan(piece)
    return bool(content.text.strip() or content.drawings)


def _span_within(piece: str, offset: int, row: int, length: int) -> Span:
    row += piece.count("\n", 0, offset)
    column = offset - piece.rfind("\n", 0, offset)
    return Span(row, column, row, column + length)


def _block_span(block: "Token") -> Span:
    first, end = block.map or [0, 1]
    return Span(first + 1, 1, max(end, first + 1), 1)


class _BlockBuilder:
    def __init__(self, span: Span) -> None:
        self.span, self.title, self.prose, self.has_text = span, "", "", False
        self.citations: list[Citation] = []
        self.names: list[str] = []

    def build(self) -> ProseBlock:
        names = list(dict.fromkeys(self.names))
        words = count_words(self.prose)
        return ProseBlock(self.span, self.title, words, self.citations, names, self.prose)


_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"


def find_hidden_characters(text: str) -> list[Marker]:
    """Return a marker for the first hidden character of each line that has one."""
    if _HIDDEN.search(text) is None:
        return []
    markers = []
    for row, line in enumerate(text.split("\n"), start=1):
        for match in _HIDDEN.finditer(line):
            if match[0] == _JOINER and _joins_emoji(line, match.start()):
                continue
            column = match.start() + 1
            description = f"U+{ord(match[0]):04X} {unicodedata.name(match[0], '')}".strip()
            markers.append(Marker(description, Span(row, column, row, column + 1)))
            break
    return markers


def _joins_emoji(line: str, index: int) -> bool:
    """Return whether a joiner connects two emoji."""
    before = line[:index].rstrip(_EMOJI_STYLE)[-1:]
    neighbours = (before, line[index + 1 : index + 2])
    return all(
        character and unicodedata.category(character) in ("So", "Sk") for character in neighbours
    )
