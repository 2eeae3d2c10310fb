"""Splits a symbol that is too long for one citation into parts that fit."""

from bisect import bisect_right

import msgspec

from notelab.cited import fitting
from notelab.cited.outline import Outline, Symbol


class Part(msgspec.Struct, frozen=True):
    """A range of lines that belong together; `symbol` is set if it is exactly a symbol."""

    first: int
    last: int
    symbol: Symbol | None = None

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return self.last - self.first + 1


def split_symbol(outline: Outline, whole: Symbol, max_lines: int) -> list[Part]:
    """Split a symbol into parts of at most `max_lines` lines, if its statements allow that.

    Adjacent statements stay together. A short paragraph is joined with the next, up to half of the
    limit. A function or class inside a class becomes a separate part.
    """
    pieces = _split_body(outline, whole.line, whole.last, max_lines)
    parts: list[Part] = []
    for piece in pieces:
        joined = Part(parts[-1].first, piece.last) if parts else piece
        is_adjacent = parts and piece.first == parts[-1].last + 1
        if (
            parts
            and joined.lines <= (max_lines if is_adjacent else max_lines // 2)
            and fitting.is_whole(outline, joined.first, joined.last)
            and fitting.straddles(outline, joined.first, joined.last) is None
        ):
            parts[-1] = joined
        else:
            parts.append(piece)
    return parts


def _split_body(outline: Outline, header: int, last: int, max_lines: int) -> list[Part]:
    """Return the statements after line `header`; those that are too long are split."""
    parts: list[Part] = []
    before = header
    for top, end in _direct_statements(outline, header, last):
        # The part begins with its comment and decorators, the first start after the last part.
        first = outline.starts[bisect_right(outline.starts, before)]
        first = first if end - first < max_lines else top
        symbol = next(
            (symbol for symbol in outline.symbols if (symbol.top, symbol.last) == (top, end)), None
        )
        piece = Part(min(first, top), end, symbol)
        inner = []
        if piece.lines > max_lines and not symbol:
            inner = _split_body(outline, top, end, max_lines) or _split_statement(outline, top, end)
        if inner:
            # The header of a statement is joined with its first inner part, if that fits.
            opened = Part(piece.first, inner[0].last)
            whole = fitting.is_whole(outline, opened.first, opened.last)
            parts += [opened, *inner[1:]] if whole and opened.lines <= max_lines else inner
        else:
            parts.append(piece)
        before = end
    return parts


def _split_statement(outline: Outline, top: int, end: int) -> list[Part]:
    """Return the paragraphs, entries or arguments of a statement that contains no other."""
    within = [group for group in outline.groups if top <= group[0][0] and group[-1][1] <= end]
    longest = max(within, key=lambda group: group[-1][1] - group[0][0], default=[])
    return [Part(first, last) for first, last in longest]


def _direct_statements(outline: Outline, header: int, last: int) -> list[tuple[int, int]]:
    """Return the outermost statements between two lines."""
    direct: list[tuple[int, int]] = []
    for first, end in outline.statements:
        if header < first and end <= last and (not direct or first > direct[-1][1]):
            direct.append((first, end))
    return direct
