"""Admonitions, foldable details and tabs: blocks whose content is indented by four spaces.

CommonMark does not know these blocks and reads their content as code, in which nothing is a
citation. The site renders them with Python-Markdown's `admonition` and pymdownx's `details` and
`tabbed`. A block is an opening line with an optional title, followed by every line that is blank or
indented by four more spaces.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

_INDENT = 4
_KINDS = r"([\w-]+)(?: +[\w-]+)*"
_TITLE = r' +"(.*)"'
# Keyed by the first three characters. The last group of a match is the title that the site shows.
_OPENINGS = {
    "???": re.compile(rf"\?{{3}}\+? ?(?:(?:{_KINDS})?{_TITLE}|{_KINDS}) *"),
    "!!!": re.compile(rf"!!! ?{_KINDS}(?:{_TITLE})? *"),
    "===": re.compile(rf"===[+!]{{0,2}}{_TITLE} *"),
}


def plugin(parser: "MarkdownIt") -> None:
    """Make a parser read these blocks; their tokens open and close as `admonition`.

    The `info` of the opening token is the opening line. The next token is the title, as inline
    text. Then come the tokens of the content, with their row numbers on the page.
    """
    parser.block.ruler.before(
        "fence",
        "admonition",
        _block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},  # blocks that it may interrupt
    )


def footnotes(parser: "MarkdownIt") -> None:
    """Make a parser read `[^1]: x` as a paragraph; CommonMark reads it as a link definition."""
    rule = next(rule for rule in parser.block.ruler.__rules__ if rule.name == "reference")
    reference = rule.fn

    def read(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
        position = state.bMarks[start] + state.tShift[start]
        return not state.src.startswith("[^", position) and reference(state, start, end, silent)

    parser.block.ruler.at("reference", read)


def _block(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
    position = state.bMarks[start] + state.tShift[start]
    pattern = _OPENINGS.get(state.src[position : position + 3])
    if pattern is None or state.is_code_block(start):
        return False
    match = pattern.fullmatch(state.src, position, state.eMarks[start])
    if match is None or silent:
        return match is not None
    indent = state.sCount[start] + _INDENT
    content_end = _find_content_end(state, start + 1, end, indent)
    token = state.push("admonition_open", "div", 1)
    token.map, token.info = [start, content_end], match[0]
    title = state.push("inline", "", 0)
    title.map, title.content, title.children = [start, start + 1], match[match.lastindex or 0], []
    _tokenize_content(state, start + 1, content_end, indent)
    state.push("admonition_close", "div", -1)
    state.line = content_end
    return True


def _find_content_end(state: "StateBlock", line: int, end: int, indent: int) -> int:
    """Return the row after the last row of the content that has text."""
    content_end = line
    while line < end and (state.isEmpty(line) or state.sCount[line] >= indent):
        line += 1
        if not state.isEmpty(line - 1):
            content_end = line
    return content_end


def _tokenize_content(state: "StateBlock", start: int, end: int, indent: int) -> None:
    """Read the rows as Markdown, as if the page's left edge were at their indentation."""
    saved_state = state.parentType, state.blkIndent, state.lineMax
    state.parentType, state.blkIndent, state.lineMax = "admonition", indent, end
    state.md.block.tokenize(state, start, end)
    state.parentType, state.blkIndent, state.lineMax = saved_state
