"""Make a lab's lock anew: record whatever resolves, judge nothing, never lose a stronger proof."""

from collections import Counter
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.resolve import Resolved
from notelab.book.workbook import Workbook, usable
from notelab.cited.outline import is_anchor
from notelab.lab import lock as lock_file
from notelab.lab.lock import Lock, LockedCitation, LockedFile, LockedSource
from notelab.page.citation import Citation
from notelab.page.note import ProseBlock
from notelab.sources.answers import SourceError, Wheel


class Relocked(msgspec.Struct):
    """A lock made anew, and the citations that could not be recorded, each with the reason.

    `remarks` says what else there is to know: by whom files were vouched for, and of wheels.
    """

    lock: Lock
    skipped: list[tuple[str, str]]
    remarks: list[str] = []


def relock(book: Workbook) -> Relocked:
    """Return the lock that the pages ask for now."""
    making = _Making(book)
    for view in book.views:
        page = view.page.key if view.page.original is None else ""
        for cell in view.note.blocks if view.note else []:
            for citation in cell.citations:
                making.take(cell, citation, page)
    return making.made()


class _Making:
    """A lock in the making, one citation after another."""

    def __init__(self, book: Workbook) -> None:
        self._book, self._old = book, book.lock or Lock()
        self._files: dict[str, dict[str, LockedFile]] = {name: {} for name in book.pins}
        self._citations: dict[str, dict[str, LockedCitation]] = {name: {} for name in book.pins}
        self._older: dict[str, dict[str, dict[str, LockedFile]]] = {}
        self._skipped: dict[str, str] = {}
        self._remarks: list[str] = []

    def take(self, cell: ProseBlock, citation: Citation, page: str) -> None:
        """Record one citation; `page` is '' on a translation, which counts with its original."""
        if not usable(citation):
            self._skipped[citation.text] = citation.problem or "its range runs backwards"
            return
        if behind := self._old.find_outdated(
            {name: citation.key_in(name) for name in self._book.pins}
        ):
            self._keep(*behind, citation, page)
            return
        resolved = self._book.resolver.resolve(citation)
        file = resolved.file
        if file is None:
            self._skipped[citation.text] = _why_not(resolved)
            return
        if file.state is State.POINTER:
            self._skipped[citation.text] = "; ".join(file.reasons)
            return
        source, key = file.source, citation.key_in(file.source)
        if file.state is State.LOCKED:
            known = self._old.file(source, file.path, self._book.pins[source].commit)
            entry = self._old.citation(source, key)
        else:
            known = LockedFile(file.blob, "git" if file.proof == "git" else "wheel")
            entry = _entry(file, citation, cell, self._citations[source].get(key))
        # The file resolves even where the lines don't, so the lock knows it all the same.
        self._files[source] |= {file.path: known} if known else {}
        if entry:
            self._record(source, citation, entry, page)
        else:
            self._skipped[citation.text] = "no source text at hand, or no such lines"

    def _keep(self, source: str, known: LockedCitation, citation: Citation, page: str) -> None:
        """Keep what still stands at an older commit: only `repin` carries it on."""
        files = self._old.sources[source].older.get(known.commit, {})
        if citation.path in files:
            kept = self._older.setdefault(source, {}).setdefault(known.commit, {})
            kept[citation.path] = files[citation.path]
        self._record(source, citation, known, page)

    def _record(self, source: str, citation: Citation, entry: LockedCitation, page: str) -> None:
        """Take an entry in, and count the page beside those that cited the same before."""
        key = citation.key_in(source)
        before = self._citations[source].get(key)
        pages = dict(before.pages) if before else {}
        if page:
            pages[page] = pages.get(page, 0) + 1
        self._citations[source][key] = msgspec.structs.replace(entry, pages=pages)

    def made(self) -> Relocked:
        sources = {
            name: LockedSource(
                self._book.pins[name].commit,
                known,
                self._wheel(name) if known else None,
                self._older.get(name, {}),
            )
            for name, known in self._files.items()
            if self._book.pins[name].commit
        }
        kept = {name: known for name, known in self._citations.items() if known}
        # Without a usable pin nothing can be recorded anew, so nothing is forgotten either.
        for name in self._old.sources.keys() & (self._book.pins.keys() - sources.keys()):
            sources[name] = self._old.sources[name]
            kept[name] = self._old.citations.get(name, {})
        lock = Lock(sources=sources, citations=kept)
        remarks = [*_vouched(self._book), *self._remarks]
        return Relocked(lock, sorted(self._skipped.items()), remarks)

    def _wheel(self, name: str) -> Wheel | None:
        """Return the wheel known for a source, by a lock or now by the index."""
        source = self._book.evidence.source(name)
        if source.known or not source.wheel:
            return source.known
        try:
            found = self._book.evidence.published_wheel(name)
        except SourceError as fault:
            self._remarks.append(f"{name}: the wheel {source.wheel} is not recorded: {fault}")
            return None
        if not found.sha256:
            self._remarks.append(
                f"{name}: the index gives no hash for {found.file}: only its RECORD's is recorded"
            )
        return found


def _vouched(book: Workbook) -> list[str]:
    """Say whose word was taken for files that this lab's lock didn't know."""
    by = Counter((file.source, file.vouched) for file in book.evidence.gathered() if file.vouched)
    return [
        f"{source}: {count} file{'' if count == 1 else 's'} vouched for by {lock}"
        for (source, lock), count in sorted(by.items())
    ]


def _why_not(resolved: Resolved) -> str:
    if resolved.rivals:
        rivals = ", ".join(file.source for file in resolved.rivals)
        return f"more than one source has the file: {rivals}; write the one meant before it"
    if resolved.sole:
        unasked = ", ".join(file.source for file in resolved.unasked)
        return f"{unasked} could not be asked for it; write `{resolved.sole.source}:` before it"
    if resolved.asked and all(file.state is State.ABSENT for file in resolved.asked):
        return "no source has the file at its pin"
    reasons = list(dict.fromkeys(reason for file in resolved.asked for reason in file.reasons))
    return "; ".join(reasons) or "no source could be asked"


def _entry(
    file: CitedFile, citation: Citation, cell: ProseBlock, known: LockedCitation | None
) -> LockedCitation | None:
    first, last = citation.first, citation.last
    if file.outline is None or last > file.outline.lines:
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


def path_of(book: Workbook) -> Path:
    """Return where the lab's lock stands."""
    return book.lab.folder / lock_file.LOCK_FILE
