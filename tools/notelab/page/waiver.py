"""Reads waivers: `<!-- shardbook: allow N208 because the lines are generated -->`.

A waiver covers the bullet, table row or paragraph that holds it. On lines of its own it covers the
block directly above it, or, after a blank line, the next block below.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from notelab.codes import RULES
from notelab.page.citation import Span
from notelab.page.note import Waiver

if TYPE_CHECKING:
    from markdown_it.token import Token

_COMMENT = re.compile(r"<!--\s*shardbook\b:?(.*?)-->", re.DOTALL | re.IGNORECASE)
_ALLOW = re.compile(
    r"\s*allow\s+(?P<codes>\w+(?:[\s,]+(?!because\b|porque\b)\w+)*)"
    r"(?:\s+(?:because|porque)\b[:\s]*(?P<reason>.*?))?\s*\Z",
    re.DOTALL,
)


def find_waivers(blocks: "list[Token]", lines: list[str]) -> Iterator[Waiver]:
    """Yield the waivers of a page, each with the rows that it covers."""
    container: tuple[int, int] | None = None  # the rows of the enclosing bullet or table row
    for index, block in enumerate(blocks):
        is_top_level_item = block.level == 1 and block.type.startswith("list_item_")
        if is_top_level_item or block.type in ("tr_open", "tr_close"):
            container = _rows(block) if block.nesting > 0 else None
        if block.type == "inline":
            pieces = [c.content for c in block.children or [] if c.type == "html_inline"]
            covered = container or _rows(block)
        elif block.type == "html_block":
            pieces = [block.content]
            covered = container or _adjacent_rows(blocks, index)
        else:
            continue
        for comment in (match for piece in pieces for match in _COMMENT.finditer(piece)):
            yield _parse_waiver(comment, _locate(comment[0], _rows(block), lines), *covered)


def _rows(block: "Token") -> tuple[int, int]:
    first, end = block.map or [0, 1]
    return first + 1, max(end, first + 1)


def _adjacent_rows(blocks: "list[Token]", index: int) -> tuple[int, int]:
    """Return the rows of the block directly above a comment, else of the next block below."""
    first, last = _rows(blocks[index])
    for block in reversed(blocks[:index]):
        if block.map and block.map[1] == first - 1 and block.map[1] > block.map[0]:
            return _rows(block)
        if block.map and block.map[1] < first - 1:
            break
    for block in blocks[index + 1 :]:
        if block.map and block.map[0] >= last and not block.type.endswith("_list_open"):
            return _rows(block)
    return first, last


def _locate(comment: str, rows: tuple[int, int], lines: list[str]) -> Span:
    opening = comment.split("\n", 1)[0]
    for row in range(rows[0], rows[1] + 1):
        column = lines[row - 1].find(opening) if row <= len(lines) else -1
        if column >= 0:
            return Span(row, column + 1, row, column + 1 + len(opening))
    return Span(rows[0], 1, rows[0], 1)


def _parse_waiver(comment: re.Match[str], span: Span, first: int, last: int) -> Waiver:
    match = _ALLOW.match(comment[1])
    if not match:
        return Waiver([], "", "is not `allow CODE because REASON`", span, first, last)
    codes = [code.upper() for code in re.findall(r"\w+", match["codes"])]
    unknown = [code for code in codes if code not in RULES]
    problem = ""
    if unknown:
        problem = f"allows `{unknown[0]}`, which is no rule"
    elif not re.search(r"\w", match["reason"] or ""):
        problem = "gives no reason"
    return Waiver(codes, " ".join((match["reason"] or "").split()), problem, span, first, last)
