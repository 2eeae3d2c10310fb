"""Checks whether a range of lines fits the structure of its file, and finds one that does."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from notelab.cited.outline import FUNCTION, Outline, Symbol

_REACH = 80  # lines to either side within which a better range is searched
# A name is too common to anchor a citation if more than this share of the statements within so
# many lines hold it. The values were chosen on the real notes: with 30 % of 20 lines, the three
# most common names of a file anchor a quarter of its statements instead of two fifths, and 9 of
# 551 honest citations needed a better name.
COMMON, NEAR_BY = 0.3, 20
_FEWEST = 10  # with fewer statements nearby, a share means nothing


def straddles(outline: Outline, first: int, last: int) -> Symbol | None:
    """Return the symbol whose edge the range crosses, or None if the range stays in one symbol.

    A range stays in one symbol if it is part of one function, if it is exactly one function or
    class, if its lines belong to a class or module and touch no function or class inside it, or if
    the functions and classes that it touches are whole. The head of a class with only some of its
    methods is none of these.
    """
    enclosing = outline.innermost(first, last)
    if enclosing and first <= enclosing.line and last == enclosing.last:
        return None
    inside_function = enclosing is not None and enclosing.kind == FUNCTION
    has_head = enclosing is not None and not inside_function and first <= enclosing.line
    parent = outline.symbols.index(enclosing) if enclosing else -1
    for symbol in outline.symbols:
        is_touched = symbol.parent == parent and symbol.last >= first and symbol.top <= last
        if is_touched and (has_head or not (first <= symbol.line and symbol.last <= last)):
            return symbol
    return None


def in_a_group(outline: Outline, first: int, last: int) -> bool:
    """Tell whether a range begins with one part of a group and ends with that part or a later one.

    A part is a header, a decorator, a branch, an entry, an argument, or a paragraph of a comment or
    docstring. The group of a part consists of its neighbours.
    """
    for group in outline.groups:
        if group[0][0] <= first and last <= group[-1][1]:
            begins = any(part[0] == first for part in group)
            if begins and any(part[1] == last and part[0] >= first for part in group):
                return True
    return False


def starts_well(outline: Outline, first: int) -> bool:
    """Tell whether a statement, or the comment or decorator above one, begins on a line."""
    return _holds(outline.starts, first)


def ends_well(outline: Outline, last: int) -> bool:
    """Tell whether a statement ends on a line."""
    return _holds(outline.ends, last)


def is_whole(outline: Outline, first: int, last: int) -> bool:
    """Tell whether a range consists of whole statements, or of parts that readers see as a unit."""
    whole = starts_well(outline, first) and ends_well(outline, last)
    return whole or in_a_group(outline, first, last)


def _holds(ordered: list[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value


def fits(outline: Outline, first: int, last: int, max_lines: int, anchors: set[str]) -> bool:
    """Tell whether a range passes every rule that can be judged without the lock."""
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
    """Return the fitting range that is closest to `first`-`last`, or None if none is nearby."""
    if not outline.structured:
        return None
    first, last = min(first, outline.lines), min(max(first, last), outline.lines)
    if anchors.isdisjoint(outline.names_between(max(first - _REACH, 1), last + _REACH)):
        return None
    best: tuple[int, tuple[int, int]] | None = None
    ends = _lines_within_reach(outline.ends, last)
    # Both lists are sorted by distance, so the search ends at the first that can't be better.
    for start in _lines_within_reach(outline.starts, first):
        if best and abs(start - first) >= best[0]:
            break
        for end in ends:
            distance = abs(start - first) + abs(end - last)
            if best and distance >= best[0]:
                break
            if end >= start and fits(outline, start, end, max_lines, anchors):
                best = (distance, (start, end))
    return best[1] if best else None


def _lines_within_reach(ordered: list[int], value: int) -> list[int]:
    window = ordered[bisect_left(ordered, value - _REACH) : bisect_right(ordered, value + _REACH)]
    return sorted(window, key=lambda line: abs(line - value))


class Weakness(msgspec.Struct):
    """Why anchors are too common: `count` of the `statements` nearby hold the rarest one, `name`.

    `better` lists names of the cited lines that are rare enough.
    """

    name: str
    count: int
    statements: int
    better: list[str]


def weakness(outline: Outline, first: int, last: int, anchors: set[str]) -> Weakness | None:
    """Return how common the anchors of a range are nearby, or None if one of them is rare there."""
    names = outline.names_between(first, last)
    statements = [
        outline.names_between(*step)
        for step in _steps(outline, first - NEAR_BY, last + NEAR_BY)
        if step[1] < first or step[0] > last
    ]
    known_anchors = sorted(names & anchors)
    if len(statements) < _FEWEST or not known_anchors:
        return None
    counts = {name: sum(name in step for step in statements) for name in names}
    limit = COMMON * len(statements)
    rarest = min(known_anchors, key=lambda name: counts[name])
    if counts[rarest] <= limit:
        return None
    # Words with an underscore come first: an identifier tells a reader more than a comment's word.
    rare_names = (name for name in names if counts[name] <= limit and len(name) > 3)
    better = sorted(rare_names, key=lambda name: (counts[name], "_" not in name, name))
    return Weakness(rarest, counts[rarest], len(statements), better)


def _steps(outline: Outline, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the simple statements and headers in a stretch of lines; for plain text, each line."""
    if not outline.structured:
        rows = range(max(first, 1), min(last, outline.lines) + 1)
        yield from ((row, row) for row in rows if outline.names[row - 1])
        return
    statements = outline.statements
    at = max(bisect_left(statements, (first, 0)) - 1, 0)
    while at < len(statements) and statements[at][0] <= last:
        top, end = statements[at]
        at += 1
        if at < len(statements):  # the statements inside a compound one count separately
            end = min(end, max(statements[at][0] - 1, top))
        if end >= first:
            yield top, end


def find_names(outline: Outline, anchors: set[str]) -> list[tuple[str, int]]:
    """Find at most four places of names in the file: definitions first, then first uses."""
    places = [
        (symbol.name, symbol.line)
        for symbol in outline.symbols
        if symbol.name.rpartition(".")[2] in anchors
    ]
    defined = {name.rpartition(".")[2] for name, _ in places}
    for row, names in enumerate(outline.names, start=1):
        for name in names.split():
            if name in anchors and name not in defined:
                defined.add(name)
                places.append((name, row))
    return places[:4]


def find_symbols(outline: Outline, name: str) -> list[Symbol]:
    """Return the symbols whose dotted name is `name`, or ends in it after a dot."""
    return [
        symbol
        for symbol in outline.symbols
        if symbol.name == name or symbol.name.endswith(f".{name}")
    ]
