"""A waiver in a page: `<!-- shardbook: allow N208 because the lines are generated -->`.

It covers the bullet, table row or paragraph that it stands in. On lines of its own it covers the
block right above it, or, where a blank line parts them, the next block below.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from notelab.page.citation import Span
from notelab.page.note import Waiver
from notelab.rules.codes import RULES

if TYPE_CHECKING:
    from markdown_it.token import Token

_COMMENT = re.compile(r"<!--\s*shardbook\b:?(.*?)-->", re.DOTALL | re.IGNORECASE)
_ALLOW = re.compile(
    r"\s*allow\s+(?P<codes>\w+(?:[\s,]+(?!because\b|porque\b)\w+)*)"
    r"(?:\s+(?:because|porque)\b[:\s]*(?P<reason>.*?))?\s*\Z",
    re.DOTALL,
)


def of_page(blocks: "list[Token]", lines: list[str]) -> Iterator[Waiver]:
    """Yield the waivers among a page's blocks, each with the rows that it covers."""
    holds: tuple[int, int] | None = None  # the bullet or table row around
    for at, block in enumerate(blocks):
        outermost = block.level == 1 and block.type.startswith("list_item_")
        if outermost or block.type in ("tr_open", "tr_close"):
            holds = _rows(block) if block.nesting > 0 else None
        if block.type == "inline":
            pieces = [c.content for c in block.children or [] if c.type == "html_inline"]
            covered = holds or _rows(block)
        elif block.type == "html_block":
            pieces = [block.content]
            covered = holds or _neighbour(blocks, at)
        else:
            continue
        for comment in (found for piece in pieces for found in _COMMENT.finditer(piece)):
            yield _read(comment, _place(comment[0], _rows(block), lines), *covered)


def _rows(block: "Token") -> tuple[int, int]:
    first, end = block.map or [0, 1]
    return first + 1, max(end, first + 1)


def _neighbour(blocks: "list[Token]", at: int) -> tuple[int, int]:
    """Return the rows of the block that touches a comment from above, else of the next below."""
    first, last = _rows(blocks[at])
    for block in reversed(blocks[:at]):
        if block.map and block.map[1] == first - 1 and block.map[1] > block.map[0]:
            return _rows(block)
        if block.map and block.map[1] < first - 1:
            break
    for block in blocks[at + 1 :]:
        if block.map and block.map[0] >= last and not block.type.endswith("_list_open"):
            return _rows(block)
    return first, last


def _place(comment: str, rows: tuple[int, int], lines: list[str]) -> Span:
    opening = comment.split("\n", 1)[0]
    for row in range(rows[0], rows[1] + 1):
        column = lines[row - 1].find(opening) if row <= len(lines) else -1
        if column >= 0:
            return Span(row, column + 1, row, column + 1 + len(opening))
    return Span(rows[0], 1, rows[0], 1)


def _read(comment: re.Match[str], span: Span, first: int, last: int) -> Waiver:
    said = _ALLOW.match(comment[1])
    if not said:
        return Waiver([], "", "is not `allow CODE because REASON`", span, first, last)
    codes = [code.upper() for code in re.findall(r"\w+", said["codes"])]
    unknown = [code for code in codes if code not in RULES]
    problem = ""
    if unknown:
        problem = f"allows `{unknown[0]}`, which is no rule"
    elif not re.search(r"\w", said["reason"] or ""):
        problem = "gives no reason"
    return Waiver(codes, " ".join((said["reason"] or "").split()), problem, span, first, last)
