"""Finds the lines of a citation that slipped: the text is the locked one, at another place now.

The lock's hash of the cited lines is looked for in the whole file. If a working tree's file lacks
the lines, its other files with the same ending are searched. `repin` has its own search, for lines
of a new commit.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from notelab.book.evidence import CitedFile, Evidence
from notelab.cited import outline
from notelab.lab.lock import LockedCitation
from notelab.lines import split_lines
from notelab.page.citation import Citation, Span
from notelab.sources.answers import WORKTREE, Offered

_MAX_FILES = 2000  # of a working tree that are searched for moved lines
_KEY = re.compile(r":L(\d{1,8})(?:-L(\d{1,8}))?", re.ASCII)
_MANY = 3  # lines whose text alone says that they moved
_Found = tuple[str, int, list[bytes]]  # a file, a row of it, and all its lines
_GetOutline = Callable[[], outline.Outline | None]


def find_moved_lines(
    evidence: Evidence, file: CitedFile, locked: LockedCitation, first: int, count: int
) -> list[tuple[str, int]]:
    """Return path and first line of each place that has the text locked at `first`, `count` lines.

    If the file lacks it, the other files of a working tree with the same ending are searched.
    Places in the symbol that the lock names come alone; one or two lines elsewhere prove nothing,
    unless that file has most lines of the old one.
    Of several places in the file, one comes alone if the citations around it moved as far.
    """
    rows = _find_rows(file.lines, lambda: file.outline, locked, count)
    if len(rows) > 1:
        moves = _find_unique_moves(evidence, file)
        before = [new - old for old, new in moves if old < first][-1:]
        after = [new - old for old, new in moves if old > first][:1]
        agreed = [first + shift for shift in before if [shift] == after]
        rows = [row for row in rows if row in agreed] or rows
    if rows or evidence.source(file.source).commit != WORKTREE:
        return [(file.path, row) for row in rows]
    places, few = list[_Found](), list[_Found]()
    for name, data in _list_files_with(evidence, file, locked.anchors):
        lines, get_outline = split_lines(data), partial(outline.of_file, name, data)
        for row in _find_rows(lines, get_outline, locked, count):
            (places if locked.symbol or count >= _MANY else few).append((name, row, lines))
    if few:
        old = set(filter(bytes.strip, _read_committed(evidence, file)))
        places += [place for place in few if 2 * len(old.intersection(place[2])) > len(old)]
    return [(name, row) for name, row, _ in places]


def _read_committed(evidence: Evidence, file: CitedFile) -> list[bytes]:
    """Return the lines that a file of a working tree had in the last commit with it."""
    git = evidence.library.clone(evidence.source(file.source))
    last = git.run("log", "-1", "--format=%H", "--", file.path).text if git else ""
    shown = [git.run("show", f"{ref}:{file.path}").out for ref in (last, f"{last}^")] if git else []
    return split_lines(next(filter(None, shown), b""))


def find_moved_symbol(
    evidence: Evidence, file: CitedFile, locked: LockedCitation
) -> list[tuple[Citation, bool]]:
    """Return where a working tree defines the symbol that a file has no longer.

    Each place comes with whether its text is the locked one.
    """
    places = []
    base = locked.symbol.rpartition(".")[2]
    for name, data in _list_files_with(evidence, file, [base]) if base else ():
        lines = split_lines(data)
        for symbol in outline.of_file(name, data).symbols:
            if symbol.name == locked.symbol:
                text = b"\n".join(lines[symbol.top - 1 : symbol.last]) + b"\n"
                place = Citation("", "", name, symbol.top, symbol.last, "", Span(1, 1, 1, 1))
                places.append((place, sha256(text).hexdigest() == locked.sha256))
    return places


def _list_files_with(
    evidence: Evidence, file: CitedFile, words: list[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield path and text of a working tree's files that have some words and `file`'s ending."""
    from notelab.sources.git.git_files import offer_from_worktree

    source, ending = evidence.source(file.source), Path(file.path).suffix
    names = [name for name in evidence.library.list_names(source) if name.endswith(ending)]
    for name in names[:_MAX_FILES]:
        answer = offer_from_worktree(Path(source.local_repository), {name: None})[name]
        if isinstance(answer, Offered) and all(word.encode() in answer.data for word in words):
            yield name, answer.data


def _find_unique_moves(evidence: Evidence, file: CitedFile) -> list[tuple[int, int]]:
    """Return old and new first line of each locked citation of a file that is at one place now."""
    key = file.source, file.path
    if key not in evidence.moves:
        moves = []
        for name, entry in evidence.lock.citations.get(file.source, {}).items():
            lines = _KEY.fullmatch(name.removeprefix(f"{file.source}:{file.path}"))
            lines = lines or _KEY.fullmatch(name.removeprefix(file.path))
            if lines:
                first, last = int(lines[1]), int(lines[2] or lines[1])
                rows = _find_rows(file.lines, lambda: file.outline, entry, last - first + 1)
                moves += [(first, row) for row in rows if len(rows) == 1]
        evidence.moves[key] = sorted(moves)
    return evidence.moves[key]


def _find_rows(
    lines: list[bytes], get_outline: _GetOutline, locked: LockedCitation, count: int
) -> list[int]:
    windows = (lines[start : start + count] for start in range(len(lines) - count + 1))
    hashes = (sha256(b"\n".join(window) + b"\n").hexdigest() for window in windows)
    rows = [row for row, digest in enumerate(hashes, start=1) if digest == locked.sha256]
    file_outline = get_outline() if rows else None
    if file_outline is None:
        return []
    symbols = {row: file_outline.innermost(row, row + count - 1) for row in rows}
    names = {row: symbol.name if symbol else "" for row, symbol in symbols.items()}
    in_symbol = [row for row in rows if names[row] == locked.symbol]
    return in_symbol or (rows if count >= _MANY else [])
