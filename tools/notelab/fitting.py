"""Does a range of lines fit the file it cites? And if not, which one would?"""

from bisect import bisect_left, bisect_right

from notelab.outline import FUNCTION, Outline, Symbol

_REACH = 80  # lines to either side within which a better range is looked for


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
    for symbol in outline.symbols:
        if symbol.parent != parent or symbol.last < first or symbol.top > last:
            continue
        whole = first <= symbol.line and symbol.last <= last
        if whole and (inside_function or _is_one_statement(outline, first, last)):
            continue
        return symbol
    return None


def _is_one_statement(outline: Outline, first: int, last: int) -> bool:
    return (first, last) in outline.statements


def starts_well(outline: Outline, first: int) -> bool:
    """Tell whether a line is the first of a statement, or of its comment or decorator."""
    return _within(outline.starts, first)


def ends_well(outline: Outline, last: int) -> bool:
    """Tell whether a line is the last of a statement."""
    return _within(outline.ends, last)


def _within(ordered: list[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value


def fits(outline: Outline, first: int, last: int, max_lines: int, anchors: set[str]) -> bool:
    """Tell whether a range passes every rule that needs no lock."""
    return (
        1 <= first <= last <= outline.lines
        and last - first < max_lines
        and starts_well(outline, first)
        and ends_well(outline, last)
        and not anchors.isdisjoint(outline.names_between(first, last))
        and straddles(outline, first, last) is None
    )


def nearest(
    outline: Outline, first: int, last: int, max_lines: int, anchors: set[str]
) -> tuple[int, int] | None:
    """Return the range closest to `first`-`last` that fits, or None where none is near."""
    if not outline.python:
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


def standing_places(outline: Outline, anchors: set[str], most: int = 4) -> list[tuple[str, int]]:
    """Return where the names stand in the file: definitions first, then first uses."""
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
    return found[:most]


def class_or_function(outline: Outline, name: str) -> list[Symbol]:
    """Return the symbols called `name`: its dotted name or a dotted ending of it."""
    return [
        symbol
        for symbol in outline.symbols
        if symbol.name == name or symbol.name.endswith(f".{name}")
    ]
