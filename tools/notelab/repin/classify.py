"""Classifies how a citation changed: same, moved, reformatted, edited or gone.

Only unambiguous changes may be written without a question. No hunk of git's histogram diff touches
the lines, their innermost symbol is the same, and so are the conditions that enclose them.
"""

from collections.abc import Callable

from notelab.cited.outline import Symbol
from notelab.repin.changes import CitationChange, Kind, Place
from notelab.repin.line_map import LineMap
from notelab.repin.moved_lines import MovedLines
from notelab.repin.proposals import Candidate, rank_candidates, select_best
from notelab.repin.version import CitedLines, Version, base_name, normalized_source

# The share of the old words, by weight, that a place must have: for the first, the symbol itself is
# enough; the second is needed for a proposal elsewhere in its class or file.
_ENOUGH_COVERAGE, _SURE_COVERAGE = 0.6, 0.75
FindFiles = Callable[[CitedLines], list[Version]]


def classify_change(
    cited: CitedLines,
    new: Version | None,
    line_map: LineMap | None,
    find_files: FindFiles,
    moved_lines: MovedLines | None = None,
) -> CitationChange:
    """Return how a citation changed.

    Args:
        cited: the citation in the old file.
        new: the file with the same path at the new commit, or None if there is none.
        line_map: the map of lines between the two files.
        find_files: finds other files that define the symbol; called only if it left this file.
        moved_lines: finds the lines by their text; asked only if nothing else has enough of them.
    """
    kind: Kind
    old, name = Place(cited.old.path, cited.first, cited.last), cited.symbol_name
    if new is not None and line_map is not None:
        start = line_map.unchanged(cited.first, cited.last)
        end = start + cited.last - cited.first if start else 0
        if start and (cited.old.blob == new.blob or cited.has_same_context(new, start, end)):
            kind = "same" if start == cited.first else "moved"
            return CitationChange(old, kind, Place(new.path, start, end), symbol=name)
    candidates = _find_candidates(cited, new, line_map, find_files)
    if moved_lines and not (candidates and candidates[0].coverage >= _ENOUGH_COVERAGE):
        candidates = select_best(candidates + moved_lines.find(cited))
    kind = "edited" if candidates else "gone"
    if candidates and new and _is_reformatted(cited, new, candidates[0].place):
        kind = "reformatted"
    searched = moved_lines.reason if moved_lines and not candidates else ""
    return CitationChange(
        old, kind, None, [each.place for each in candidates], symbol=name, searched=searched
    )


def _is_reformatted(cited: CitedLines, new: Version, place: Place) -> bool:
    is_same_file = place.path == new.path and new.path.endswith((".py", ".pyi"))
    if not is_same_file or not cited.has_same_context(new, place.start, place.end):
        return False
    before = cited.old.lines[cited.first - 1 : cited.last]
    return normalized_source(before) == normalized_source(new.lines[place.start - 1 : place.end])


def _find_candidates(
    cited: CitedLines, new: Version | None, line_map: LineMap | None, find_files: FindFiles
) -> list[Candidate]:
    name = cited.symbol_name
    if new is None:
        return select_best(_find_in_other_files(cited, find_files))
    symbols = new.symbols_named(name) if name else []
    if name and not symbols:
        candidates = _find_in_other_files(cited, find_files)
        candidates += _whole_symbols(cited, new, _find_renamed(cited, new))
        return select_best(candidates + _rank_in_enclosing(cited, new, line_map))
    candidates = _whole_symbols(cited, new, symbols)
    candidates = select_best(candidates + rank_candidates(cited, new, symbols, line_map))
    if name and not (candidates and candidates[0].coverage >= _ENOUGH_COVERAGE):
        enclosing = _rank_in_enclosing(cited, new, line_map)
        sure = [candidate for candidate in enclosing if candidate.coverage >= _SURE_COVERAGE]
        return select_best(candidates + sure)
    return candidates


def _find_renamed(cited: CitedLines, new: Version) -> list[Symbol]:
    """Return the only new symbol with the same base name that the old file did not have."""
    base = base_name(cited.symbol_name)
    symbols = [
        symbol
        for symbol in new.symbols_by_base_name(base)
        if not cited.old.symbols_named(symbol.name)
    ]
    return symbols if len(symbols) == 1 and not base.endswith("__") else []


def _whole_symbols(cited: CitedLines, new: Version, new_symbols: list[Symbol]) -> list[Candidate]:
    """Return the new symbols as candidates if the citation is a whole symbol, else nothing."""
    symbol = cited.symbol
    if symbol is None or cited.last != symbol.last:
        return []
    for start in ("top", "line", "first"):
        if cited.first == getattr(symbol, start):
            return [
                Candidate(1, 1, Place(new.path, getattr(new_symbol, start), new_symbol.last))
                for new_symbol in new_symbols
            ]
    return []


def _rank_in_enclosing(
    cited: CitedLines, new: Version, line_map: LineMap | None
) -> list[Candidate]:
    """Rank the lines of what still encloses the place of a symbol: its class, else the file."""
    name, symbols = cited.symbol_name, list[Symbol]()
    while "." in name and not symbols:
        name = name.rpartition(".")[0]
        symbols = new.symbols_named(name)
    return rank_candidates(cited, new, symbols, line_map)


def _find_in_other_files(cited: CitedLines, find_files: FindFiles) -> list[Candidate]:
    candidates: list[Candidate] = []
    for version in find_files(cited):
        symbols = version.symbols_named(cited.symbol_name)
        named_alike = symbols or version.symbols_by_base_name(base_name(cited.symbol_name))
        ranked = rank_candidates(cited, version, named_alike, None)
        candidates += _whole_symbols(cited, version, symbols)
        candidates += [each for each in ranked if symbols or each.coverage >= _SURE_COVERAGE]
    return candidates
