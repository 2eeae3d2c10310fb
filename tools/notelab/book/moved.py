"""Finds lines that the lock knows by their hash and that are at another place now."""

from hashlib import sha256
from pathlib import Path

from notelab.book.evidence import CitedFile, Evidence
from notelab.lab.lock import LockedCitation
from notelab.lines import split_lines
from notelab.sources.answers import WORKTREE, Offered, Source

_MAX_FILES = 2000  # of a working tree that are searched


def find_moved_lines(
    evidence: Evidence, file: CitedFile, locked: LockedCitation, count: int
) -> list[tuple[str, int]]:
    """Return path and first line of each place that has the locked text of `count` lines.

    If a file has it several times, the places in the symbol that the lock names come alone. If the
    file lacks it, the other files of a working tree with the same ending are searched.
    """
    rows = _find_rows(file.lines, locked, count)
    if len(rows) > 1 and file.outline:
        symbols = {row: file.outline.innermost(row, row + count - 1) for row in rows}
        names = {row: symbol.name if symbol else "" for row, symbol in symbols.items()}
        rows = [row for row in rows if names[row] == locked.symbol] or rows
    source = evidence.source(file.source)
    if rows or source.commit != WORKTREE:
        return [(file.path, row) for row in rows]
    return _search_worktree(evidence, source, file.path, locked, count)


def _search_worktree(
    evidence: Evidence, source: Source, path: str, locked: LockedCitation, count: int
) -> list[tuple[str, int]]:
    from notelab.sources.git.worktree import offer

    ending = Path(path).suffix
    names = [name for name in evidence.library.list_names(source) if name.endswith(ending)]
    anchors = [name.encode() for name in locked.anchors]
    places = []
    for name in names[:_MAX_FILES]:
        answer = offer(Path(source.local_repository), {name: None})[name]
        if isinstance(answer, Offered) and all(anchor in answer.data for anchor in anchors):
            rows = _find_rows(split_lines(answer.data), locked, count)
            places += [(name, row) for row in rows]
    return places


def _find_rows(lines: list[bytes], locked: LockedCitation, count: int) -> list[int]:
    windows = (lines[start : start + count] for start in range(len(lines) - count + 1))
    hashes = (sha256(b"\n".join(window) + b"\n").hexdigest() for window in windows)
    return [row for row, digest in enumerate(hashes, start=1) if digest == locked.sha256]
