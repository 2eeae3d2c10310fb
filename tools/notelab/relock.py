"""Make a lab's lock anew: record whatever resolves, judge nothing, never lose a stronger proof."""

import contextlib
import os
from pathlib import Path

import msgspec

from notelab import lock as lock_file
from notelab.check import Workbook, usable
from notelab.evidence import CitedFile, State
from notelab.lock import Lock, LockedCitation, LockedFile, LockedSource
from notelab.note import Cell
from notelab.outline import is_anchor


class Relocked(msgspec.Struct):
    """A lock made anew, and the citations that could not be recorded, each with the reason."""

    lock: Lock
    skipped: list[tuple[str, str]]


def relock(book: Workbook) -> Relocked:
    """Return the lock that the pages ask for now."""
    old = book.lock or Lock()
    files: dict[str, dict[str, LockedFile]] = {name: {} for name in book.pins}
    citations: dict[str, dict[str, LockedCitation]] = {name: {} for name in book.pins}
    skipped: dict[str, str] = {}
    for view in book.views:
        for cell in view.note.cells if view.note else []:
            for citation in cell.citations:
                if not usable(citation):
                    skipped[citation.text] = citation.problem or "its range runs backwards"
                    continue
                names = [citation.source] if citation.source else list(book.pins)
                asked = [
                    file for name in names if (file := book.evidence.file(name, citation.path))
                ]
                there = [file for file in asked if file.state in (State.PROVED, State.LOCKED)]
                if len(there) != 1:
                    skipped[citation.text] = _why_not(asked, there)
                    continue
                file = there[0]
                known = citations[file.source].get(citation.key)
                entry = _entry(file, citation.first, citation.last, cell, known)
                entry = entry or _kept(old, file, citation.key)
                if entry is None:
                    skipped[citation.text] = "no source text at hand, or no such lines"
                    continue
                commit = book.pins[file.source].commit
                files[file.source][file.path] = _file(
                    file, old.file(file.source, file.path, commit)
                )
                citations[file.source][citation.key] = entry
    sources = {
        name: LockedSource(book.pins[name].commit, known)
        for name, known in files.items()
        if book.pins[name].commit and known
    }
    kept = {name: known for name, known in citations.items() if known}
    return Relocked(Lock(sources=sources, citations=kept), sorted(skipped.items()))


def _why_not(asked: list[CitedFile], there: list[CitedFile]) -> str:
    if there:
        return "more than one source has the file: " + ", ".join(file.source for file in there)
    if asked and all(file.state is State.ABSENT for file in asked):
        return "no source has the file at its pin"
    reasons = list(dict.fromkeys(reason for file in asked for reason in file.reasons))
    return "; ".join(reasons) or "no source could be asked"


def _entry(
    file: CitedFile, first: int, last: int, cell: Cell, known: LockedCitation | None
) -> LockedCitation | None:
    if file.state is not State.PROVED or file.outline is None or last > file.outline.lines:
        return None
    symbol = file.outline.innermost(first, last)
    standing = file.outline.names_between(first, last)
    anchors = {name for name in cell.names if is_anchor(name) and name in standing}
    if known:
        anchors |= set(known.anchors)
    return LockedCitation(
        sha256=file.sha256_of(first, last),
        symbol=symbol.name if symbol else "",
        anchors=sorted(anchors),
    )


def _kept(old: Lock, file: CitedFile, key: str) -> LockedCitation | None:
    return old.citation(file.source, key) if file.state is State.LOCKED else None


def _file(file: CitedFile, known: LockedFile | None) -> LockedFile:
    if file.state is State.LOCKED:
        assert known is not None
        return known
    return LockedFile(file.blob, "git" if file.proof == "git" else "wheel")


def write_together(contents: dict[Path, str]) -> None:
    """Write files so that an interrupt leaves the old ones: all aside first, then put in place.

    Raises:
        OSError: one of them can't be written; then none was touched.
    """
    scratches: dict[Path, Path] = {}
    try:
        for path, text in contents.items():
            scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
            scratches[path] = scratch
            scratch.write_text(text, "utf-8", newline="\n")
        for path, scratch in scratches.items():
            scratch.replace(path)
    finally:
        for scratch in scratches.values():
            with contextlib.suppress(OSError):
                scratch.unlink()


def path_of(book: Workbook) -> Path:
    """Return where the lab's lock stands."""
    return book.lab.folder / lock_file.LOCK_FILE
