"""Does a range of lines fit the file it cites? And if not, which one would?"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from notelab.cited.outline import FUNCTION, Outline, Symbol

_REACH = 80  # lines to either side within which a better range is looked for
# A name in more than this share of the statements within so many lines tells none of them apart.
# Found on the real notes: at 30 % of 20 lines the three commonest names of a file anchor a quarter
# of its statements instead of two fifths, and 9 of 551 honest citations needed a better name.
COMMON, NEAR_BY = 0.3, 20
_FEWEST = 10  # statements near by, below which no share means anything


def straddles(outline: Outline, first: int, last: int) -> Symbol | None:
    """Return the symbol whose edge the range crosses, or None where it keeps within one symbol.

    A range keeps within one symbol when it is a part of one function, or the whole of one function
    or class, or lines of a class or module that touch no function or class in it.
    """
    enclosing = outline.innermost(first, last)
    if enclosing and first <= enclosing.line and last == enclosing.last:
        return None
    inside_function = enclosing is not None and enclosing.kind == FUNCTION
    parent = outline.symbols.index(enclosing) if enclosing else -1
    touched = [
        symbol
        for symbol in outline.symbols
        if symbol.parent == parent and symbol.last >= first and symbol.top <= last
    ]
    if _are_one_name(touched, first, last):
        return None
    for symbol in touched:
        whole = first <= symbol.line and symbol.last <= last
        if not (whole and (inside_function or _is_one_statement(outline, first, last))):
            return symbol
    return None


def _are_one_name(symbols: list[Symbol], first: int, last: int) -> bool:
    """A property with its setter, or a function with its overloads: several symbols, one name."""
    same = len(symbols) > 1 and len({symbol.name for symbol in symbols}) == 1
    return same and symbols[0].first <= first <= symbols[0].line and last == symbols[-1].last


def _is_one_statement(outline: Outline, first: int, last: int) -> bool:
    return (first, last) in outline.statements or in_a_group(outline, first, last)


def in_a_group(outline: Outline, first: int, last: int) -> bool:
    """Tell whether a range runs from one part of a group to itself or a later one.

    A part is a header, a decorator, a branch, an entry, an argument, a paragraph of a comment or
    docstring; its group are its neighbours.
    """
    for group in outline.groups:
        if group[0][0] <= first and last <= group[-1][1]:
            begins = any(part[0] == first for part in group)
            if begins and any(part[1] == last and part[0] >= first for part in group):
                return True
    return False


def starts_well(outline: Outline, first: int) -> bool:
    """Tell whether a line is the first of a statement, or of its comment or decorator."""
    return _within(outline.starts, first)


def ends_well(outline: Outline, last: int) -> bool:
    """Tell whether a line is the last of a statement."""
    return _within(outline.ends, last)


def is_whole(outline: Outline, first: int, last: int) -> bool:
    """Tell whether a range is of whole statements, or of parts that a reader takes for a unit."""
    whole = starts_well(outline, first) and ends_well(outline, last)
    return whole or in_a_group(outline, first, last)


def _within(ordered: list[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value


def fits(outline: Outline, first: int, last: int, max_lines: int, anchors: set[str]) -> bool:
    """Tell whether a range passes every rule that needs no lock."""
    return (
        1 <= first <= last <= outline.lines
        and last - first < max_lines
        and is_whole(outline, first, last)
        and not anchors.isdisjoint(outline.names_between(first, last))
        and straddles(outline, first, last) is None
    )


def nearest(
    outline: Outline, first: int, last: int, max_lines: int, anchors: set[str]
) -> tuple[int, int] | None:
    """Return the range closest to `first`-`last` that fits, or None where none is near."""
    if not outline.structured:
        return None
    first, last = min(first, outline.lines), min(max(first, last), outline.lines)
    if anchors.isdisjoint(outline.names_between(max(first - _REACH, 1), last + _REACH)):
        return None
    best: tuple[int, tuple[int, int]] | None = None
    ends = _near(outline.ends, last)
    # Both are in order of distance, so the first that can't be better ends the search.
    for start in _near(outline.starts, first):
        if best and abs(start - first) >= best[0]:
            break
        for end in ends:
            distance = abs(start - first) + abs(end - last)
            if best and distance >= best[0]:
                break
            if end >= start and fits(outline, start, end, max_lines, anchors):
                best = (distance, (start, end))
    return best[1] if best else None


def _near(ordered: list[int], value: int) -> list[int]:
    window = ordered[bisect_left(ordered, value - _REACH) : bisect_right(ordered, value + _REACH)]
    return sorted(window, key=lambda line: abs(line - value))


class Weakness(msgspec.Struct):
    """Anchors that tell nothing apart: the rarest, in `stands` of `near` statements near by.

    `better` are names of the cited lines that would.
    """

    name: str
    stands: int
    near: int
    better: list[str]


def weakness(outline: Outline, first: int, last: int, anchors: set[str]) -> Weakness | None:
    """Return how weak the anchors of a range are; None where one of them is rare near by."""
    here = outline.names_between(first, last)
    near = [
        outline.names_between(*step)
        for step in _steps(outline, first - NEAR_BY, last + NEAR_BY)
        if step[1] < first or step[0] > last
    ]
    mine = sorted(here & anchors)
    if len(near) < _FEWEST or not mine:
        return None
    stands = {name: sum(name in step for step in near) for name in here}
    most = COMMON * len(near)
    rarest = min(mine, key=lambda name: stands[name])
    if stands[rarest] <= most:
        return None
    # A comment's words come last: an identifier says more to whoever reads the lines.
    rare = (name for name in here if stands[name] <= most and len(name) > 3)
    better = sorted(rare, key=lambda name: (stands[name], "_" not in name, name))
    return Weakness(rarest, stands[rarest], len(near), better)


def _steps(outline: Outline, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the simple statements and headers that stand in the lines; of plain text, its lines."""
    if not outline.structured:
        rows = range(max(first, 1), min(last, outline.lines) + 1)
        yield from ((row, row) for row in rows if outline.names[row - 1])
        return
    statements = outline.statements
    at = max(bisect_left(statements, (first, 0)) - 1, 0)
    while at < len(statements) and statements[at][0] <= last:
        top, end = statements[at]
        at += 1
        if at < len(statements):  # what stands in a compound statement is a step of its own
            end = min(end, max(statements[at][0] - 1, top))
        if end >= first:
            yield top, end


def standing_places(outline: Outline, anchors: set[str]) -> list[tuple[str, int]]:
    """Return where names stand in the file, four at most: definitions first, then first uses."""
    found = [
        (symbol.name, symbol.line)
        for symbol in outline.symbols
        if symbol.name.rpartition(".")[2] in anchors
    ]
    seen = {name.rpartition(".")[2] for name, _ in found}
    for row, names in enumerate(outline.names, start=1):
        for name in names.split():
            if name in anchors and name not in seen:
                seen.add(name)
                found.append((name, row))
    return found[:4]


def class_or_function(outline: Outline, name: str) -> list[Symbol]:
    """Return the symbols called `name`: its dotted name or a dotted ending of it."""
    return [
        symbol
        for symbol in outline.symbols
        if symbol.name == name or symbol.name.endswith(f".{name}")
    ]
