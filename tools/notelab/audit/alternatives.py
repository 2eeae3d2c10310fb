"""The other places that a citation may mean, beside the first proposal of its verdict."""

from collections.abc import Iterator

from notelab.audit.mentions import COMMENT, Mention, find_definitions, is_impl
from notelab.cited.outline import Symbol
from notelab.repin.changes import Place
from notelab.repin.version import Version, base_name

_NEAR = 0.7  # from which it is next to the citation
_SLIP = 2  # lines by which a range may miss the edge of what it means
_MISSED = 0.3  # the share of a symbol that may have been added at its end since the range was cited
_IN_SENTENCE = 0.25  # the weight from which a name is in the sentence of the citation


def list_alternatives(new: Version, first: Place, mentions: list[Mention]) -> Iterator[Place]:
    """Yield other places that a citation may mean, the likeliest first.

    Args:
        new: the file at the commit of the code.
        first: the first proposal.
        mentions: the names around the citation.
    """
    rows = range(first.start, first.end + 1)
    code = [row for row in rows if not COMMENT.match(new.lines[row - 1])]
    heads = [symbol for symbol in new.outline.symbols if [symbol.line] == code[:1]]
    whole = [Place(new.path, symbol.line, symbol.last) for symbol in heads]
    size = first.end - first.start + 1
    yield from whole if size > 1 else ()
    yield from _find_opening(new, first)
    yield from [Place(new.path, code[0], code[-1])] if code else ()
    near = [each for each in mentions if each.weight >= _IN_SENTENCE] or mentions[:1]
    for mention in near[:4]:
        if definition := find_definition(new, mention.name):
            place = place_at(new, definition.start, size)
            yield definition if place.end - place.start + 1 == size else place
    for symbol in heads if size > 1 else ():  # up to the next definition
        following = (each.line for each in new.outline.symbols if each.line > symbol.last)
        end = min(following, default=len(new.lines) + 1) - 1
        yield Place(new.path, symbol.line, end)
    named = new.rows_by_name.get(near[0].name, []) if near else []
    known = {*rows, *(find_definitions(new, near[0].name) if near else ())}
    uses = [row for row in named if row not in known and not COMMENT.match(new.lines[row - 1])]
    for row in sorted(uses, key=lambda row: abs(row - first.start))[:1]:
        yield Place(new.path, row, row)
    yield from whole


def _find_opening(new: Version, place: Place) -> Iterator[Place]:
    """Yield a range from the line that opens its last bracket."""
    start, closing = place.start, new.lines[place.end - 1]
    if closing.lstrip()[:1] in ("}", ")", "]"):
        indent = len(closing) - len(closing.lstrip())
        while start > 1 and not new.lines[start - 1][: indent + 1].strip():
            start -= 1
        yield Place(new.path, start, place.end)


def find_definition(new: Version, name: str) -> Place | None:
    """Return the line that defines a name, if exactly one does.

    Of several lines, the heads of symbols count; an `impl` only extends what another line defines.
    """
    found = find_definitions(new, name)
    rows = list(found)
    if len(rows) > 1:
        rows = [row for row, is_head in found.items() if is_head and not is_impl(new, row)]
    return Place(new.path, rows[0], rows[0]) if len(rows) == 1 else None


def find_whole(old: Version, new: Version, place: Place, mentions: list[Mention]) -> Place | None:
    """Return where a symbol is now that some old lines meant as a whole, or None.

    The lines begin at the symbol or in the comment above it, and end near its end. The text names
    it next to the citation. The new range has the comment if the old one had.
    """
    names = [mention.name for mention in mentions[:2] if mention.weight >= _NEAR]
    for symbol in old.outline.symbols if place.start != place.end else ():
        missed = symbol.last - place.end
        is_start = _find_top(old, symbol) - _SLIP <= place.start <= symbol.line
        if not is_start or base_name(symbol.name) not in names:
            continue
        if not -_SLIP <= missed <= (symbol.last - symbol.line) * _MISSED:
            continue
        named = new.symbols_named(symbol.name) or new.symbols_by_base_name(base_name(symbol.name))
        if len(named) == 1:
            starts = {symbol.line: named[0].line, symbol.top: named[0].top}
            start = starts.get(place.start) or _find_top(new, named[0])
            return Place(new.path, start, named[0].last)
    return None


def _find_top(version: Version, symbol: Symbol) -> int:
    """Return the first line of the comment above a symbol, or of the symbol."""
    top, lines = symbol.first, version.lines
    while top > 1 and lines[top - 2].strip() and COMMENT.match(lines[top - 2]):
        top -= 1
    return top


def place_at(new: Version, row: int, size: int) -> Place:
    """Return the range of about `size` lines that starts at a row: a whole symbol if it can be."""
    if size > 1:
        for symbol in new.outline.symbols:
            whole = symbol.last - symbol.line + 1
            if symbol.line == row and size * 0.5 <= whole <= size * 2.5 + 4:
                return Place(new.path, symbol.line, symbol.last)
    return Place(new.path, row, min(row + size - 1, len(new.lines)))
