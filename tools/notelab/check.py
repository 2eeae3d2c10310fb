"""Prove a lab: read its pages, gather what they cite, judge, and count what was proved."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from notelab import lab as lab_file
from notelab import lock as lock_file
from notelab import pages, pins, view
from notelab.citation import Citation
from notelab.evidence import CitedFile, Evidence, State
from notelab.finding import TOP, Finding
from notelab.lab import Lab
from notelab.lock import Lock
from notelab.memo import Memo
from notelab.rules import constraints, diagrams, languages, stop
from notelab.rules.citations import Judge, Use, Verdict
from notelab.rules.numbers import Numbers
from notelab.sources.library import Library
from notelab.view import View


class NoteReport(msgspec.Struct):
    """What was counted and proved of one page."""

    filename: str
    lab: str
    language: str
    words: int
    choices: int
    citations: int
    proved: int
    locked: int
    diagrams: int


class SourceReport(msgspec.Struct):
    """How a source's cited files came: by which provider, with which proof."""

    name: str
    commit: str
    release: str
    files: int
    proved: int
    providers: dict[str, int]
    reasons: list[str]


class LabReport(msgspec.Struct):
    """What was proved of one lab."""

    title: str
    folder: str
    sources: list[SourceReport]
    notes: int
    citations: int
    proved: int
    locked: int
    diagrams: int
    unread_for_paste: int


class Report(msgspec.Struct):
    """The outcome of a check over one or more labs."""

    findings: list[Finding] = []
    notes: list[NoteReport] = []
    labs: list[LabReport] = []

    def add(self, other: "Report") -> None:
        """Take in another lab's outcome; a place that two labs judge is said once."""
        self.findings = sorted({*self.findings, *other.findings}, key=lambda one: one.order)
        self.notes += other.notes
        self.labs += other.labs


class Bench(msgspec.Struct):
    """What a check works with: the content cache, and who makes a library of sources."""

    memo: Memo
    library: Library

    def lab(self, folder: Path) -> Lab:
        """Read a lab's file, once however often it is asked for.

        Raises:
            NotelabError: lab.toml cannot be read.
        """
        return self.memo.once("lab", str(folder), lambda: lab_file.load(folder, self.memo))


class Workbook(msgspec.Struct):
    """A lab opened: its pages read, its pins, its lock, the evidence for what it cites."""

    lab: Lab
    views: list[View]
    pins: dict[str, pins.Pin]
    lock: Lock | None
    evidence: Evidence


def open_lab(folder: Path, bench: Bench, only: set[Path] | None = None) -> Workbook:
    """Open a lab and gather the evidence for the pages in `only` (all of them where None).

    Raises:
        NotelabError: lab.toml or the lock cannot be read.
    """
    lab = bench.lab(folder)
    found = pages.of_lab(lab)
    if only is not None:
        found = _with_relatives(found, only)
    views = [view.of_page(page, bench.memo) for page in found]
    pinned = {
        name: pins.read(name, lab.pins_folder / source.pin) for name, source in lab.sources.items()
    }
    lock = lock_file.load(lab.folder / lock_file.LOCK_FILE)
    evidence = Evidence(lab, pinned, lock or Lock(), bench.library, bench.memo)
    evidence.gather(_wanted(lab, views, lock, pinned, everything=only is None))
    return Workbook(lab, views, pinned, lock, evidence)


def _with_relatives(found: list[pages.Page], only: set[Path]) -> list[pages.Page]:
    """Keep the pages asked for, with the originals and translations they are compared with."""
    families = {page.family for page in found if page.path in only}
    return [page for page in found if page.family in families]


def usable(citation: Citation) -> bool:
    """Tell whether a citation is formed well enough to look its file up."""
    return not citation.problem and citation.first <= citation.last


def _wanted(
    lab: Lab,
    views: list[View],
    lock: Lock | None,
    pinned: dict[str, pins.Pin],
    *,
    everything: bool,
) -> Iterable[tuple[str, str]]:
    for one in views:
        for citation in one.note.citations if one.note else []:
            if usable(citation) and (not citation.source or citation.source in lab.sources):
                yield citation.source, citation.path
    # Every file that the lock knows is compared with the pages for pasted source.
    for name, source in lock.sources.items() if lock and everything else ():
        if name in pinned and source.commit == pinned[name].commit:
            yield from ((name, path) for path in source.files)


def check_lab(folder: Path, bench: Bench, only: set[Path] | None = None) -> Report:
    """Prove a lab, or only some of its pages.

    Raises:
        NotelabError: lab.toml or the lock cannot be read.
    """
    book = open_lab(folder, bench, only)
    judge = Judge(book.lab, book.pins, book.lock, book.evidence)
    parser = diagrams.Diagrams(bench.memo)
    numbers = Numbers(book.lab)
    files = [file for file in book.evidence.gathered() if file.state is State.PROVED]
    report = Report()
    findings = list(stop.pin_findings(book.pins))
    findings += _unresolvable(book)
    used: Counter[Use] = Counter()
    by_path = {one.page.path: one for one in book.views}
    for one in book.views:
        verdicts = list(judge.verdicts(one))
        if one.page.original is None:
            used.update(_used(one, verdicts))
        findings += stop.page_findings(book.lab, one, book.pins)
        findings += (finding for verdict in verdicts for finding in verdict.findings)
        findings += diagrams.findings(one, parser)
        findings += numbers.findings(one)
        findings += constraints.findings(one, files)
        if one.page.original is not None:
            findings += languages.findings(by_path[one.page.original], one)
        if one.note is not None:
            report.notes.append(_note_report(book, one, verdicts))
    findings += numbers.stale_findings()
    pages_read = {one.page.key for one in book.views if one.note}
    findings += judge.lock_findings(used, pages_read, whole=only is None)
    report.findings = sorted(set(findings), key=lambda finding: finding.order)
    report.labs = [_lab_report(book, report.notes)]
    return report


def _unresolvable(book: Workbook) -> Iterable[Finding]:
    """Say once that a pin is no commit of its source, rather than once a citation."""
    for name, pin in book.pins.items():
        reason = book.evidence.unknown_commit(name) if pin.commit else ""
        if reason:
            yield Finding(
                "N122",
                view.shown(pin.path),
                TOP,
                f"the pin of `{name}` is no commit of its source",
                expected="a commit that the source has",
                found=reason,
                help=f"write it with `shardbook pin {name} REF`",
            )


def _used(one: View, verdicts: list[Verdict]) -> list[Use]:
    citations = one.note.citations if one.note else []
    return [
        (verdict.source, citation.key, one.page.key)
        for citation, verdict in zip(citations, verdicts, strict=True)
        if verdict.source
    ]


def _note_report(book: Workbook, one: View, verdicts: list[Verdict]) -> NoteReport:
    note = one.note
    assert note is not None
    sound = [verdict for verdict in verdicts if not verdict.findings]
    return NoteReport(
        filename=one.filename,
        lab=view.shown(book.lab.folder),
        language=one.page.language,
        words=note.words,
        choices=len(note.choices),
        citations=len(verdicts),
        proved=sum(verdict.proved for verdict in sound),
        locked=sum(verdict.locked for verdict in sound),
        diagrams=len(note.diagrams),
    )


def _lab_report(book: Workbook, notes: list[NoteReport]) -> LabReport:
    gathered = book.evidence.gathered()
    return LabReport(
        title=book.lab.file.lab.title,
        folder=view.shown(book.lab.folder),
        sources=[_source_report(book, name, gathered) for name in book.pins],
        notes=len(notes),
        citations=sum(note.citations for note in notes),
        proved=sum(note.proved for note in notes),
        locked=sum(note.locked for note in notes),
        diagrams=sum(note.diagrams for note in notes),
        unread_for_paste=sum(file.state is State.LOCKED for file in gathered),
    )


def _source_report(book: Workbook, name: str, gathered: list[CitedFile]) -> SourceReport:
    mine = [file for file in gathered if file.source == name]
    there = [file for file in mine if file.state in (State.PROVED, State.LOCKED)]
    providers: dict[str, int] = {}
    for file in there:
        if file.state is State.PROVED:
            providers[file.provider] = providers.get(file.provider, 0) + 1
    reasons = {reason: None for file in there for reason in file.reasons}
    return SourceReport(
        name=name,
        commit=book.pins[name].commit,
        release=book.lab.sources[name].release,
        files=len(there),
        proved=sum(file.state is State.PROVED for file in there),
        providers=providers,
        reasons=list(reasons) if any(file.state is State.LOCKED for file in there) else [],
    )
