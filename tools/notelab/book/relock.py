"""Writes a lab's lock again: it records all citations that resolve, and never weakens a proof."""

from collections import Counter
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.resolve import Resolution
from notelab.book.workbook import Workbook, is_usable
from notelab.lab import lock as lock_file
from notelab.lab.lock import Lock, LockedCitation, LockedFile, LockedSource
from notelab.lines import is_anchor
from notelab.page.citation import Citation
from notelab.page.note import ProseBlock
from notelab.sources.answers import WORKTREE, SourceError, Wheel


class RelockResult(msgspec.Struct):
    """The new lock, and the citations that could not be recorded, each with the reason.

    `remarks` reports files that other labs' locks record, and what is missing about wheels.
    """

    lock: Lock
    skipped: list[tuple[str, str]]
    remarks: list[str] = []


def relock(book: Workbook) -> RelockResult:
    """Return the lock that the pages need now."""
    builder = _LockBuilder(book)
    for view in book.views:
        page = view.page.key if view.page.original is None else ""
        for cell in view.note.blocks if view.note else []:
            for citation in cell.citations:
                builder.add(cell, citation, page)
    return builder.build()


class _LockBuilder:
    """Builds a lock from one citation after another."""

    def __init__(self, book: Workbook) -> None:
        self._book, self._old = book, book.lock or Lock()
        self._files: dict[str, dict[str, LockedFile]] = {name: {} for name in book.pins}
        self._citations: dict[str, dict[str, LockedCitation]] = {name: {} for name in book.pins}
        self._older: dict[str, dict[str, dict[str, LockedFile]]] = {}
        self._skipped: dict[str, str] = {}
        self._remarks: list[str] = []

    def add(self, cell: ProseBlock, citation: Citation, page: str) -> None:
        """Record one citation; `page` is '' for a translation, which counts with its original."""
        if not is_usable(citation):
            self._skipped[citation.text] = citation.problem or "its range runs backwards"
            return
        if behind := self._old.find_outdated(
            {name: citation.key_in(name) for name in self._book.pins}
        ):
            self._keep_older(*behind, citation, page)
            return
        resolved = self._book.resolver.resolve(citation)
        file = resolved.file
        if file is None:
            self._skipped[citation.text] = _explain_unresolved(resolved)
            return
        if file.state is State.POINTER:
            self._skipped[citation.text] = "; ".join(file.reasons)
            return
        source, key = file.source, citation.key_in(file.source)
        if file.state is State.LOCKED:
            locked_file = self._old.file(source, file.path, self._book.pins[source].commit)
            entry = self._old.citation(source, key)
        else:
            in_worktree = self._book.pins[source].commit == WORKTREE
            blob = WORKTREE if in_worktree else file.blob  # not the blob of a file that changes
            locked_file = LockedFile(blob, "git" if file.proof == "git" else "wheel")
            entry = _make_entry(file, citation, cell, self._citations[source].get(key))
        # The file exists even if the lines don't, so the lock records the file.
        self._files[source] |= {file.path: locked_file} if locked_file else {}
        if entry:
            self._record(source, citation, entry, page)
        else:
            self._skipped[citation.text] = (
                "the source text is not available, or it has no such lines"
            )

    def _keep_older(
        self, source: str, entry: LockedCitation, citation: Citation, page: str
    ) -> None:
        """Keep a citation that is still at an older commit, because only `repin` may move it."""
        files = self._old.sources[source].older.get(entry.commit, {})
        if citation.path in files:
            older_files = self._older.setdefault(source, {}).setdefault(entry.commit, {})
            older_files[citation.path] = files[citation.path]
        self._record(source, citation, entry, page)

    def _record(self, source: str, citation: Citation, entry: LockedCitation, page: str) -> None:
        """Record an entry, and count the page among those that cite the same lines."""
        key = citation.key_in(source)
        before = self._citations[source].get(key)
        pages = dict(before.pages) if before else {}
        if page:
            pages[page] = pages.get(page, 0) + 1
        self._citations[source][key] = msgspec.structs.replace(entry, pages=pages)

    def build(self) -> RelockResult:
        """Return the finished lock."""
        sources = {
            name: LockedSource(
                self._book.pins[name].commit,
                files,
                self._wheel(name) if files else None,
                self._older.get(name, {}),
            )
            for name, files in self._files.items()
            if self._book.pins[name].commit
        }
        citations = {name: entries for name, entries in self._citations.items() if entries}
        # Without a usable pin nothing new can be recorded, so the old entries are kept.
        for name in self._old.sources.keys() & (self._book.pins.keys() - sources.keys()):
            sources[name] = self._old.sources[name]
            citations[name] = self._old.citations.get(name, {})
        lock = Lock(sources=sources, citations=citations)
        remarks = [*_list_sibling_remarks(self._book), *self._remarks]
        return RelockResult(lock, sorted(self._skipped.items()), remarks)

    def _wheel(self, name: str) -> Wheel | None:
        """Return the wheel of a source that a lock records, or else the index has."""
        source = self._book.evidence.source(name)
        if source.known_wheel or not source.wheel:
            return source.known_wheel
        try:
            wheel = self._book.evidence.library.wheel(source)
        except SourceError as fault:
            self._remarks.append(f"{name}: the wheel {source.wheel} is not recorded: {fault}")
            return None
        if not wheel.sha256:
            self._remarks.append(
                f"{name}: the index gives no hash for {wheel.file}; only the hash of its RECORD is "
                "recorded"
            )
        return wheel


def _list_sibling_remarks(book: Workbook) -> list[str]:
    """Report which other locks record files that this lab's lock didn't."""
    counts = Counter(
        (file.source, file.vouched_by) for file in book.evidence.list_files() if file.vouched_by
    )
    return [
        f"{source}: {count} file{'' if count == 1 else 's'} vouched for by {lock}"
        for (source, lock), count in sorted(counts.items())
    ]


def _explain_unresolved(resolved: Resolution) -> str:
    if resolved.rivals:
        rivals = ", ".join(file.source for file in resolved.rivals)
        return f"several sources have the file: {rivals}; write the source's name before the path"
    if resolved.sole:
        unasked = ", ".join(file.source for file in resolved.unknown)
        return (
            f"{unasked} could not be asked for the file; write `{resolved.sole.source}:` before it"
        )
    if resolved.candidates and all(file.state is State.ABSENT for file in resolved.candidates):
        return "no source has the file at its pin"
    reasons = list(dict.fromkeys(reason for file in resolved.candidates for reason in file.reasons))
    return "; ".join(reasons) or "no source could be asked"


def _make_entry(
    file: CitedFile, citation: Citation, cell: ProseBlock, earlier: LockedCitation | None
) -> LockedCitation | None:
    first, last = citation.first, citation.last
    if file.outline is None or last > file.outline.lines:
        return None
    symbol = file.outline.innermost(first, last)
    cited_names = file.outline.names_between(first, last)
    anchors = {name for name in cell.names if is_anchor(name) and name in cited_names}
    if earlier:
        anchors |= set(earlier.anchors)
    return LockedCitation(
        sha256=file.sha256_of(first, last),
        symbol=symbol.name if symbol else "",
        anchors=sorted(anchors),
    )


def lock_path(book: Workbook) -> Path:
    """Return the path of the lab's lock."""
    return book.lab.folder / lock_file.LOCK_FILE
