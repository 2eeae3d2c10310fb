"""Prove a lab: read its pages, gather what they cite, judge, and count what was proved."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.view import View
from notelab.book.workbook import Bench, Workbook, open_labs
from notelab.errors import shown
from notelab.mermaid.diagrams import Diagrams
from notelab.report.finding import Finding
from notelab.report.outcome import LabReport, NoteReport, Report, SourceReport, Unparsed
from notelab.rules import constraints, languages, stop, unjudged
from notelab.rules.citations import Judge, Verdict
from notelab.rules.diagrams import findings as diagram_findings
from notelab.rules.locked import Use
from notelab.rules.numbers import Numbers
from notelab.rules.waivers import Waivers


def check_labs(
    wanted: Mapping[Path, set[Path] | None],
    bench: Bench,
    *,
    unasked: bool = False,
    strict: bool = False,
) -> Report:
    """Prove several labs, of each all its pages or only some.

    Nobody named those that are `unasked`: what one in progress lacks is then no finding. What looks
    like a citation and is not judged is counted, and is a finding where the check is `strict`.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read.
    """
    report = Report()
    try:
        books = open_labs(wanted, bench)
        diagrams = _diagrams(books, bench)
        for book, only in zip(books, wanted.values(), strict=True):
            one = _judged(book, bench, diagrams, whole=only is None, unasked=unasked)
            report.add(one if strict else _counted(one))
    finally:  # what was worked out before an interrupt is worth keeping
        bench.cache.save()
    return report


def _counted(report: Report) -> Report:
    """Take out of the findings what is only counted unless a check is strict."""
    report.findings = [one for one in report.findings if one.code != unjudged.STRICT]
    return report


def _diagrams(books: list[Workbook], bench: Bench) -> Diagrams:
    """Return what all labs of a run share to parse diagrams, engine and time, and parse the new."""
    diagrams = Diagrams(bench.cache.file_for(books[0].lab.root if books else Path.cwd()))
    read = (one.note for book in books for one in book.views if one.note)
    diagrams.ahead((diagram.text for note in read for diagram in note.diagrams), bench.progress)
    return diagrams


def _judged(
    book: Workbook, bench: Bench, diagrams: Diagrams, *, whole: bool, unasked: bool
) -> Report:
    rules = _Rules(book, bench, diagrams)
    findings: list[Finding] = [*stop.pin_findings(book)]
    tally = _Tally(shown(book.lab.folder))
    for one in book.views:
        verdicts = rules.citations.verdicts(one)
        tally.count(one, verdicts)
        findings += (finding for verdict in verdicts for finding in verdict.findings)
        findings += rules.findings(one)
    findings += rules.numbers.stale_findings()
    findings += rules.citations.lock.lock_findings(
        tally.used, tally.sound, {one.page.key for one in book.views} if whole else None
    )
    waivers = Waivers(book.lab, book.views)
    left = list(waivers.sift(set(findings)))
    left += waivers.findings(whole=whole)
    not_judged = Counter(one.filename for one in left if one.code == unjudged.STRICT)
    for note in tally.notes:
        note.waived = waivers.waived[note.filename]
        note.unjudged = not_judged[note.filename]
    ordered = sorted(set(left), key=lambda finding: finding.order)
    to_do = [one for one in ordered if unasked and stop.is_to_do(book.lab, one)]
    return Report(
        findings=[one for one in ordered if one not in to_do],
        to_do=to_do,
        notes=tally.notes,
        labs=[_lab_report(book, tally, waivers.waived.total(), len(to_do), whole=whole)],
    )


class _Rules:
    """The rules at work on one lab."""

    def __init__(self, book: Workbook, bench: Bench, diagrams: Diagrams) -> None:
        self._book = book
        self._originals = {one.page.path: one for one in book.views if not one.page.original}
        self._diagrams = diagrams
        gathered = book.evidence.gathered()
        proved = (file for file in gathered if file.state is State.PROVED)
        cache = bench.cache.file_for(book.lab.root)
        self._pinned = constraints.Pinned(proved, cache)
        self.citations = Judge(book, cache)
        self.numbers = Numbers(book.lab, cache)

    def findings(self, one: View) -> Iterator[Finding]:
        """Judge all of a page but its citations."""
        yield from stop.page_findings(self._book.lab, one, self._book.pins)
        yield from diagram_findings(one, self._diagrams)
        yield from self.numbers.findings(one)
        yield from constraints.findings(one, self._pinned)
        yield from unjudged.findings(self._book, one)
        if one.page.original is not None:
            yield from languages.findings(self._originals[one.page.original], one)


class _Tally(msgspec.Struct):
    """What is counted on the way: what each page cites, and how far that was proved."""

    lab: str  # its folder, as it is shown
    notes: list[NoteReport] = []
    used: Counter[Use] = msgspec.field(default_factory=Counter)
    lock_only: Counter[str] = msgspec.field(default_factory=Counter)
    unstructured: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    sound: set[str] = set()

    def count(self, one: View, verdicts: list[Verdict]) -> None:
        """Count one page's citations."""
        if one.note is None:
            return
        self.notes.append(_note_report(self.lab, one, verdicts))
        if one.page.original is None:
            self.used.update([(v.source, v.key, one.page.key) for v in verdicts if v.source])
            if not any(verdict.findings for verdict in verdicts):
                self.sound.add(one.page.key)
        if any(verdict.locked or verdict.unstructured for verdict in verdicts):
            for citation, verdict in zip(one.note.citations, verdicts, strict=True):
                sound = not verdict.findings
                if verdict.locked and sound:
                    self.lock_only[f"{verdict.source}:{citation.path}"] += 1
                if verdict.unstructured and sound:
                    self.unstructured[verdict.source, citation.path] += 1


def _note_report(lab: str, one: View, verdicts: list[Verdict]) -> NoteReport:
    note = one.note
    assert note is not None
    sound = [verdict for verdict in verdicts if not verdict.findings]
    return NoteReport(
        filename=one.filename,
        lab=lab,
        language=one.page.language,
        words=note.words,
        choices=len(note.choices),
        citations=len(verdicts),
        proved=sum([verdict.proved for verdict in sound]),
        locked=sum([verdict.locked for verdict in sound]),
        diagrams=len(note.diagrams),
        by_wheel=sum([verdict.proof == "wheel" for verdict in sound]),
        unstructured=sum([verdict.unstructured for verdict in sound]),
        cited_choices=sum([bool(choice.citations) for choice in note.choices]),
        min_choices=one.page.table.min_choices or 0,
        max_words=one.page.table.max_words or 0,
    )


_SUMS = ("citations", "proved", "locked", "diagrams", "by_wheel", "unstructured", "unjudged")


def _lab_report(
    book: Workbook, tally: _Tally, waived: int, to_do: int, *, whole: bool
) -> LabReport:
    gathered, notes = book.evidence.gathered(), tally.notes
    return LabReport(
        title=book.lab.file.lab.title,
        folder=tally.lab,
        sources=[_source_report(book, name, gathered) for name in book.pins],
        notes=len(notes),
        lock_only=dict(sorted(tally.lock_only.items())),
        unparsed=_unparsed(book, tally.unstructured),
        unread_for_paste=sum(file.state is State.LOCKED for file in gathered),
        waived=waived,
        in_progress=book.lab.file.lab.in_progress,
        to_do=to_do,
        compares=whole and book.lab.compares,
        **{field: sum(getattr(note, field) for note in notes) for field in _SUMS},
    )


def _unparsed(book: Workbook, cited: Counter[tuple[str, str]]) -> dict[str, Unparsed]:
    """Return, of the files whose citations no structure rule judged, those that could have one."""
    found = {}
    for (source, path), citations in sorted(cited.items()):
        file = book.evidence.file(source, path)
        if file and file.outline and file.outline.unread:
            found[f"{source}:{path}"] = Unparsed(file.outline.unread, citations)
    return found


def _source_report(book: Workbook, name: str, gathered: list[CitedFile]) -> SourceReport:
    mine = [file for file in gathered if file.source == name]
    there = [file for file in mine if file.state in (State.PROVED, State.LOCKED)]
    proved = [file for file in there if file.state is State.PROVED]
    vouched = Counter(file.vouched for file in there if file.vouched)
    reasons = {reason: None for file in there for reason in file.reasons}
    return SourceReport(
        name=name,
        commit=book.pins[name].commit,
        release=book.lab.sources[name].release,
        files=len(there),
        proved=len(proved),
        providers=dict(Counter(file.provider for file in proved)),
        reasons=list(reasons) if len(proved) < len(there) else [],
        vouched=dict(sorted(vouched.items())),
    )
