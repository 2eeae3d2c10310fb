"""Check labs: read the pages, gather the cited files, apply the rules, count what was proved.

`check_input` checks one document from standard input, which belongs to no lab. In a git repository
its citations are those of the working tree. What only a lab can know is not checked: its pins and
its lock, and which other repositories are sources.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import CheckSession, Workbook, open_labs, open_views
from notelab.codes import RULES
from notelab.errors import NotelabError, display_path
from notelab.finding import Finding
from notelab.lab import pages
from notelab.lab.lab import LAB_FILE, Lab, repository_root
from notelab.lab.lab_file import LabFile, LabTable, NoteTable, SourceTable
from notelab.lab.lock import LOCK_FILE
from notelab.lab.pages import ParsedPage, list_earlier_pages, parse_text
from notelab.lab.pins import HEAD, Pin
from notelab.mermaid.parsed_diagrams import Diagrams
from notelab.report.outcome import LabReport, NoteReport, Report, SourceReport, Unparsed
from notelab.rules import commits, constraints, languages, limits, unjudged
from notelab.rules.citations import Judge, Verdict
from notelab.rules.diagrams import findings as diagram_findings
from notelab.rules.locked import Use
from notelab.rules.numbers import Numbers
from notelab.rules.waivers import Waivers
from notelab.sources.answers import WORKTREE


def check_labs(
    labs: Mapping[Path, set[Path] | None],
    bench: CheckSession,
    *,
    implicit: bool = False,
    strict: bool = False,
    codes: frozenset[str] = frozenset(RULES),
) -> Report:
    """Check several labs and return one report.

    Args:
        labs: the folder of each lab, with the pages to check, or None for all of its pages.
        bench: the cache, the sources and the progress display of this run.
        implicit: the user named no lab. What a lab in progress lacks is then listed as to do, and
            is not a finding.
        strict: text that looks like a citation but is not checked is a finding. Otherwise it is
            counted.
        codes: the rules whose findings are reported.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read.
    """
    report = Report()
    try:
        books = open_labs(labs, bench)
        diagrams = _prefetch_diagrams(books, bench)
        for book, pages in zip(books, labs.values(), strict=True):
            report.add(
                check_book(book, bench, diagrams, all_pages=pages is None, implicit=implicit)
            )
    finally:  # keep the results computed before an interrupt
        bench.cache.save()
    report.keep(codes if strict else codes - {unjudged.STRICT})
    return report


def _prefetch_diagrams(books: list[Workbook], bench: CheckSession) -> Diagrams:
    """Parse the new diagrams of all labs; return the parser that the whole run shares."""
    diagrams = Diagrams(bench.cache.file_for(books[0].lab.root if books else Path.cwd()))
    notes = (view.note for book in books for view in book.views if view.note)
    diagrams.prefetch((diagram.text for note in notes for diagram in note.diagrams), bench.progress)
    return diagrams


def check_book(
    book: Workbook,
    bench: CheckSession,
    diagrams: Diagrams | None = None,
    *,
    all_pages: bool = False,
    implicit: bool = False,
) -> Report:
    """Check an open lab; `all_pages` says that none of its pages was left out."""
    diagrams = diagrams or _prefetch_diagrams([book], bench)
    rules = _LabRules(book, bench, diagrams)
    findings: list[Finding] = [
        *commits.pin_findings(book),
        *commits.release_findings(book),
    ]
    tally = _Tally(display_path(book.lab.folder))
    for view in book.views:
        verdicts = rules.citations.verdicts(view)
        tally.count(view, verdicts)
        findings += (finding for verdict in verdicts for finding in verdict.findings)
        findings += rules.findings(view, verdicts)
    findings += rules.numbers.stale_findings()
    if all_pages and book.lab.file.lab.min_new_choices:
        cache = bench.cache.file_for(book.lab.root)
        earlier = [pages.parse(page, cache) for page in list_earlier_pages(book.lab)]
        findings += limits.check_new_choices(book, earlier)
    findings += rules.citations.lock.lock_findings(
        tally.used, tally.sound, {view.page.key for view in book.views} if all_pages else None
    )
    waivers = Waivers(book.lab, book.views)
    remaining = list(waivers.sift(set(findings)))
    remaining += waivers.findings()
    unjudged_counts = Counter(
        finding.filename for finding in remaining if finding.code == unjudged.STRICT
    )
    for note in tally.notes:
        note.waived = waivers.waived[note.filename]
        note.unjudged = unjudged_counts[note.filename]
    ordered = sorted(set(remaining), key=lambda finding: finding.order)
    to_do = [finding for finding in ordered if implicit and limits.is_to_do(book.lab, finding)]
    return Report(
        findings=[finding for finding in ordered if finding not in to_do],
        to_do=to_do,
        warnings=list(waivers.warnings(all_pages=all_pages)),
        notes=tally.notes,
        labs=[_report_lab(book, tally, waivers.waived.total(), len(to_do), all_pages=all_pages)],
    )


class _LabRules:
    """All rules, prepared for one lab."""

    def __init__(self, book: Workbook, bench: CheckSession, diagrams: Diagrams) -> None:
        self._book = book
        self._originals = {view.page.path: view for view in book.views if not view.page.original}
        self._diagrams = diagrams
        files = book.evidence.list_files()
        proved = (file for file in files if file.state is State.PROVED)
        cache = bench.cache.file_for(book.lab.root)
        self._pinned = constraints.Pinned(proved, cache)
        self.citations = Judge(book, cache)
        self.numbers = Numbers(book.lab)

    def findings(self, view: ParsedPage, verdicts: list[Verdict]) -> Iterator[Finding]:
        """Yield the findings of a page, except those about its citations."""
        yield from limits.page_findings(self._book.lab, view, self._book.pins)
        yield from diagram_findings(view, self._diagrams)
        yield from self.numbers.findings(view)
        quotations = self.citations.quotations(view)
        every = (finding for verdict in verdicts for finding in verdict.findings)
        # The quotations of moved lines are judged where they are now.
        moved = {finding.span for finding in every if finding.code == "N218"}
        yield from (found for _, each, found in quotations if found and each.span not in moved)
        allowed = quotations if self._book.lab.file.lab.quotes else []
        yield from constraints.findings(view, self._pinned, [each.span for each, _, _ in allowed])
        yield from unjudged.findings(self._book, view)
        if view.page.original is not None:
            yield from languages.findings(self._originals[view.page.original], view)


class _Tally(msgspec.Struct):
    """Counts gathered during a check: what each page cites and how it was proved."""

    lab: str  # its folder, as messages show it
    notes: list[NoteReport] = []
    used: Counter[Use] = msgspec.field(default_factory=Counter)
    lock_only: Counter[str] = msgspec.field(default_factory=Counter)
    unstructured: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    sound: set[str] = set()

    def count(self, view: ParsedPage, verdicts: list[Verdict]) -> None:
        """Count the citations of one page."""
        if view.note is None:
            return
        self.notes.append(_report_note(self.lab, view, verdicts))
        if view.page.original is None:
            self.used.update([(v.source, v.key, view.page.key) for v in verdicts if v.source])
            if not any(verdict.findings for verdict in verdicts):
                self.sound.add(view.page.key)
        if any(verdict.locked or verdict.unstructured for verdict in verdicts):
            for citation, verdict in zip(view.note.citations, verdicts, strict=True):
                sound = not verdict.findings
                if verdict.locked and sound:
                    self.lock_only[f"{verdict.source}:{citation.path}"] += 1
                if verdict.unstructured and sound:
                    self.unstructured[verdict.source, citation.path] += 1


def _report_note(lab: str, view: ParsedPage, verdicts: list[Verdict]) -> NoteReport:
    note = view.note
    assert note is not None
    sound = [verdict for verdict in verdicts if not verdict.findings]
    return NoteReport(
        filename=view.filename,
        lab=lab,
        language=view.page.language,
        words=note.words,
        choices=len(note.choices),
        citations=len(verdicts),
        proved=sum([verdict.proved for verdict in sound]),
        locked=sum([verdict.locked for verdict in sound]),
        diagrams=len(note.diagrams),
        by_wheel=sum([verdict.proof == "wheel" for verdict in sound]),
        unstructured=sum([verdict.unstructured for verdict in sound]),
        cited_choices=sum([bool(choice.citations) for choice in note.choices]),
        min_choices=view.page.table.min_choices or 0,
        max_words=view.page.table.max_words or 0,
    )


_SUMS = ("citations", "proved", "locked", "diagrams", "by_wheel", "unstructured", "unjudged")


def _report_lab(
    book: Workbook, tally: _Tally, waived_count: int, to_do_count: int, *, all_pages: bool
) -> LabReport:
    files, notes = book.evidence.list_files(), tally.notes
    compares = all_pages and book.lab.compares
    return LabReport(
        title=book.lab.file.lab.title,
        folder=tally.lab,
        sources=[_report_source(book, name, files) for name in book.pins],
        notes=len(notes),
        lock_only=dict(sorted(tally.lock_only.items())),
        unparsed=_find_unparsed(book, tally.unstructured),
        unread_for_paste=sum(file.state is State.LOCKED for file in files),
        waived=waived_count,
        in_progress=book.lab.file.lab.in_progress,
        to_do=to_do_count,
        compares=compares,
        committed=compares and _is_committed(book),
        **{field: sum(getattr(note, field) for note in notes) for field in _SUMS},
    )


def _is_committed(book: Workbook) -> bool:
    """Tell whether the lab's notes, its lab file and its lock are committed as they are."""
    from notelab.sources.git.git_command import list_uncommitted

    lab = book.lab
    paths = [view.page.path for view in book.views if view.exists]
    paths += [path for name in (LAB_FILE, LOCK_FILE) if (path := lab.folder / name).exists()]
    paths = [path for path in paths if path.is_relative_to(lab.folder)]
    try:
        return list_uncommitted(lab.root, paths) == []
    except NotelabError:  # git fails: `compare` says why
        return False


def _find_unparsed(book: Workbook, cited: Counter[tuple[str, str]]) -> dict[str, Unparsed]:
    """Return the cited files without a structure rule, each with the reason."""
    unparsed = {}
    for (source, path), citations in sorted(cited.items()):
        file = book.evidence.file(source, path)
        if file and file.outline:
            reason = file.outline.unread or "its language has no structure rule"
            unparsed[f"{source}:{path}"] = Unparsed(reason, citations)
    return unparsed


def _report_source(book: Workbook, name: str, lab_files: list[CitedFile]) -> SourceReport:
    files = [file for file in lab_files if file.source == name]
    available = [file for file in files if file.state in (State.PROVED, State.LOCKED)]
    proved = [file for file in available if file.state is State.PROVED]
    vouched = Counter(file.vouched_by for file in available if file.vouched_by)
    reasons = {reason: None for file in available for reason in file.reasons}
    return SourceReport(
        name=name,
        commit=book.pins[name].commit,
        release=book.lab.sources[name].release,
        files=len(available),
        proved=len(proved),
        providers=dict(Counter(file.provider for file in proved)),
        reasons=list(reasons) if len(proved) < len(available) else [],
        vouched=dict(sorted(vouched.items())),
    )


# Rules that only a lab has, and those about files where there is no repository.
_OF_LABS = {"N210", "N212", "N216", "N602"}
_OF_FILES = {"N203", "N213"}


def check_input(name: str, session: CheckSession, codes: frozenset[str]) -> Report:
    """Check what standard input holds as if it were the file `name` of the current folder.

    Raises:
        NotelabError: `name` leads out of the repository.
    """
    path, root = (Path.cwd() / name).resolve(), repository_root(Path.cwd())
    if not path.is_relative_to(root):
        raise NotelabError(f"{name}: the document must be in this repository")
    has_repository = (root / ".git").exists()
    sources = {"own": SourceTable(pin=HEAD, path=".")} if has_repository else {}
    table = LabTable(title="standard input", quotes=True)
    lab = Lab(Path.cwd(), root, LabFile(table, sources), sources, Path.cwd(), {}, [])
    page = pages.Page(path, name, "en", None, NoteTable(), None, listed=False)
    text = pages.decode(sys.stdin.buffer.read(pages.MAX_BYTES + 1))
    view = parse_text(page, text, session.cache.file_for(root))
    pinned = {source: Pin(source, path, WORKTREE) for source in sources}
    book = open_views(lab, [view], pinned, None, session)
    report = check_book(book, session)
    ignored = _OF_LABS | (set() if has_repository else _OF_FILES)
    report.keep(codes - ignored)
    return report
