"""Admonitions, foldable details and tabs: blocks whose content is indented by four spaces.

CommonMark has none of them and reads such content as code, where nothing is cited. These are the
site's own (Python-Markdown's `admonition`, pymdownx's `details` and `tabbed`): an opening line with
no prose but its title, then every line that is blank or indented by four spaces more than it.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

_INDENT = 4
_KINDS = r"([\w-]+)(?: +[\w-]+)*"
_TITLE = r' +"(.*)"'
# By the first three characters. The last group of a match is what the site shows as the title.
_OPENINGS = {
    "???": re.compile(rf"\?{{3}}\+? ?(?:(?:{_KINDS})?{_TITLE}|{_KINDS}) *"),
    "!!!": re.compile(rf"!!! ?{_KINDS}(?:{_TITLE})? *"),
    "===": re.compile(rf"===[+!]{{0,2}}{_TITLE} *"),
}


def plugin(parser: "MarkdownIt") -> None:
    """Teach a parser to read these blocks; their tokens open and close as `admonition`.

    The opening token has its line as `info`. What follows it is the title, as inline text; then the
    content's own tokens, with the rows that they have on the page.
    """
    parser.block.ruler.before(
        "fence",
        "admonition",
        _block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},  # what such a block may end
    )


def footnotes(parser: "MarkdownIt") -> None:
    """Teach a parser that `[^1]: x` is a paragraph: CommonMark takes it for a link's address."""
    rule = next(rule for rule in parser.block.ruler.__rules__ if rule.name == "reference")
    reference = rule.fn

    def read(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
        at = state.bMarks[start] + state.tShift[start]
        return not state.src.startswith("[^", at) and reference(state, start, end, silent)

    parser.block.ruler.at("reference", read)


def _block(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
    at = state.bMarks[start] + state.tShift[start]
    opening = _OPENINGS.get(state.src[at : at + 3])
    if opening is None or state.is_code_block(start):
        return False
    opened = opening.fullmatch(state.src, at, state.eMarks[start])
    if opened is None or silent:
        return opened is not None
    indent = state.sCount[start] + _INDENT
    after = _first_after(state, start + 1, end, indent)
    token = state.push("admonition_open", "div", 1)
    token.map, token.info = [start, after], opened[0]
    title = state.push("inline", "", 0)
    title.map, title.content, title.children = [start, start + 1], opened[opened.lastindex or 0], []
    _content(state, start + 1, after, indent)
    state.push("admonition_close", "div", -1)
    state.line = after
    return True


def _first_after(state: "StateBlock", line: int, end: int, indent: int) -> int:
    """Return the row after the last that has text and belongs to the content."""
    after = line
    while line < end and (state.isEmpty(line) or state.sCount[line] >= indent):
        line += 1
        if not state.isEmpty(line - 1):
            after = line
    return after


def _content(state: "StateBlock", start: int, end: int, indent: int) -> None:
    """Read the rows as Markdown, as if their indentation were the page's edge."""
    outside = state.parentType, state.blkIndent, state.lineMax
    state.parentType, state.blkIndent, state.lineMax = "admonition", indent, end
    state.md.block.tokenize(state, start, end)
    state.parentType, state.blkIndent, state.lineMax = outside
