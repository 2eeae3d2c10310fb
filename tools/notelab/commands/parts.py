"""A symbol too long for one citation, in parts that fit one each."""

from bisect import bisect_right

import msgspec

from notelab.cited import fitting
from notelab.cited.outline import Outline, Symbol


class Part(msgspec.Struct, frozen=True):
    """A range of lines that reads as one; `symbol` where it is the whole of one."""

    first: int
    last: int
    symbol: Symbol | None = None

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return self.last - self.first + 1


def parts_of(outline: Outline, whole: Symbol, most: int) -> list[Part]:
    """Cut a symbol into parts of at most `most` lines, where its statements allow that.

    Statements that stand together stay together, and short paragraphs join the next, up to half
    of what a citation may have. A function or class within a class is a part of its own.
    """
    pieces = _pieces(outline, whole.line, whole.last, most)
    parts: list[Part] = []
    for piece in pieces:
        joined = Part(parts[-1].first, piece.last) if parts else piece
        beside = parts and piece.first == parts[-1].last + 1
        if (
            parts
            and joined.lines <= (most if beside else most // 2)
            and fitting.is_whole(outline, joined.first, joined.last)
            and fitting.straddles(outline, joined.first, joined.last) is None
        ):
            parts[-1] = joined
        else:
            parts.append(piece)
    return parts


def _pieces(outline: Outline, header: int, last: int, most: int) -> list[Part]:
    """Return the statements after line `header`, those that are too long cut into theirs."""
    found: list[Part] = []
    before = header
    for top, end in _direct(outline, header, last):
        # Its comment and decorators belong to it: nothing else begins since the statement before.
        first = outline.starts[bisect_right(outline.starts, before)]
        first = first if end - first < most else top
        symbol = next((one for one in outline.symbols if (one.top, one.last) == (top, end)), None)
        piece = Part(min(first, top), end, symbol)
        inner = []
        if piece.lines > most and not symbol:
            inner = _pieces(outline, top, end, most) or _grouped(outline, top, end)
        if inner:
            # What opens a statement goes with the first of what is in it, where that may be.
            opened = Part(piece.first, inner[0].last)
            whole = fitting.is_whole(outline, opened.first, opened.last)
            found += [opened, *inner[1:]] if whole and opened.lines <= most else inner
        else:
            found.append(piece)
        before = end
    return found


def _grouped(outline: Outline, top: int, end: int) -> list[Part]:
    """Return what a statement with no other in it has: paragraphs, entries, arguments."""
    within = [group for group in outline.groups if top <= group[0][0] and group[-1][1] <= end]
    longest = max(within, key=lambda group: group[-1][1] - group[0][0], default=[])
    return [Part(first, last) for first, last in longest]


def _direct(outline: Outline, header: int, last: int) -> list[tuple[int, int]]:
    """Return the statements between two lines that stand in no other between them."""
    direct: list[tuple[int, int]] = []
    for first, end in outline.statements:
        if header < first and end <= last and (not direct or first > direct[-1][1]):
            direct.append((first, end))
    return direct
