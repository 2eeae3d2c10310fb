"""N2xx: does each citation exist at the pin, fit, name what it shows, stand in the lock?"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from notelab import fitting
from notelab.citation import Citation, Span, written
from notelab.evidence import CitedFile, Evidence, State
from notelab.finding import TOP, Finding
from notelab.lab import Lab
from notelab.lock import Lock, LockedCitation
from notelab.note import Cell
from notelab.outline import Outline, is_anchor
from notelab.pins import Pin
from notelab.view import View, shown

# A citation as the lock counts it: source, written form, page.
Use = tuple[str, str, str]


class Verdict(msgspec.Struct):
    """What became of one citation: its findings, and how far it was proved."""

    findings: list[Finding]
    source: str = ""
    proved: bool = False
    locked: bool = False


class Judge:
    """Judges the citations of one lab."""

    def __init__(
        self, lab: Lab, pins: dict[str, Pin], lock: Lock | None, evidence: Evidence
    ) -> None:
        """`lock` is None where the lab has none."""
        self._lab, self._pins, self._evidence = lab, pins, evidence
        self._has_lock = lock is not None
        self._lock = lock or Lock()

    def verdicts(self, view: View) -> Iterator[Verdict]:
        """Judge every citation of a page, in the page's order."""
        if view.note is None:
            return
        most = view.page.table.max_lines or self._lab.file.lab.max_lines
        times = Counter(citation.text for citation in view.note.citations)
        for cell in view.note.cells:
            for citation in cell.citations:
                case = _Case(view, cell, citation, most, times[citation.text])
                yield self._verdict(case)

    def _verdict(self, case: "_Case") -> Verdict:
        citation = case.citation
        if citation.problem:
            return Verdict([case.finding("N201", f"`{citation.text[:80]}` {citation.problem}")])
        if citation.last < citation.first:
            turned = written(citation.path, citation.last, citation.first)
            message = f"the range of `{citation.text}` runs backwards"
            return Verdict([case.finding("N202", message, help=f"`{turned}`?")])
        file = self._resolve(case)
        if file is None:
            return Verdict([])
        if isinstance(file, Finding):
            return Verdict([file])
        findings = []
        listed = case.view.page.table.sources
        if listed and file.source not in listed:
            findings.append(
                case.finding(
                    "N214",
                    f"`{citation.path}` is a file of `{file.source}`, which this note doesn't read",
                    expected="a file of " + " or ".join(f"`{name}`" for name in listed),
                    help=f'add "{file.source}" to the note\'s `sources` in lab.toml',
                )
            )
        proved = file.state is State.PROVED
        if self._lock.citation(file.source, citation.key) is None:
            case.once = _nearest_locked(self._lock, file, citation, case.page)
        if proved:
            findings += fit_findings(case, file)
        # A range that doesn't fit must be mended, not locked: saying both would mislead.
        findings = findings or self._lock_findings(case, file)
        return Verdict(findings, file.source, proved=proved, locked=not proved)

    def _resolve(self, case: "_Case") -> CitedFile | Finding | None:
        """Find the one file cited; None where an unusable pin, a finding itself, is in the way."""
        citation = case.citation
        if citation.source and citation.source not in self._lab.sources:
            return case.finding(
                "N203",
                f"`{citation.text}` names a source, `{citation.source}`, that is none of this lab",
                expected=" or ".join(f"`{name}`" for name in self._lab.sources),
            )
        names = (
            [citation.source] if citation.source else self._evidence.likely_sources(citation.path)
        )
        asked = [file for name in names if (file := self._evidence.file(name, citation.path))]
        there = [file for file in asked if file.state in (State.PROVED, State.LOCKED)]
        if len(there) == 1:
            return there[0]
        if there:
            return case.finding(
                "N204",
                f"`{citation.path}` is a file of more than one source",
                expected="one source",
                found=", ".join(f"`{file.source}`" for file in there),
                help=f"write `{there[0].source}:{citation.text}`",
            )
        if any(self._pins[name].code or self._evidence.unknown_commit(name) for name in names):
            return None
        return _nowhere(case, asked)

    def _lock_findings(self, case: "_Case", file: CitedFile) -> list[Finding]:
        pin = self._pins[file.source]
        known_source = self._lock.sources.get(file.source)
        if not self._has_lock or (known_source and known_source.commit != pin.commit):
            return []  # said once, of the lock
        known = self._lock.citation(file.source, case.citation.key)
        locked_file = self._lock.file(file.source, file.path, pin.commit)
        if known is None or locked_file is None:
            return [self._not_locked(case, file)]
        if case.times > known.pages.get(case.page, 0):
            return [self._not_locked(case, file, known)]
        if file.state is State.PROVED:
            return _content_against_lock(case, file, known, locked_file.blob)
        if known.anchors and set(known.anchors).isdisjoint(case.cell.names):
            return [_not_anchored(case, "the lock knows that " + _names(known.anchors) + " do")]
        return []

    def _not_locked(
        self, case: "_Case", file: CitedFile, known: LockedCitation | None = None
    ) -> Finding:
        unread = "" if file.state is State.PROVED else " and no source text was at hand to judge it"
        if known:
            before = _times(known.pages.get(case.page, 0))
            knows_it = f"knows `{case.citation.text}` {before} on this page, where it stands "
            knows_it += _times(case.times)
        else:
            knows_it = f"doesn't know `{case.citation.text}`{unread}"
        knows = f"the lock knows `{case.once}` on this page; else, if" if case.once else "if"
        return case.finding(
            "N210",
            f"the lock {knows_it}",
            expected=f"the citation in {shown(self._lab.folder / 'citations.lock')}",
            help=f"{knows} these are the lines you mean, run `shardbook lock`",
        )

    def lock_findings(
        self, used: Counter[Use], sound: set[str], every: set[str] | None
    ) -> Iterator[Finding]:
        """Judge the lock itself, by what the pages that were read cite.

        Args:
            used: how often each original page cites what.
            sound: the pages with no citation to mend; what the lock holds for another is judged
                once it is mended.
            every: all the pages of the lab, where all were read.
        """
        path = self._lab.folder / "citations.lock"
        if not self._has_lock:
            if used:
                yield Finding(
                    "N210",
                    shown(path),
                    TOP,
                    "the lab has citations and no lock",
                    expected="citations.lock",
                    found="no file",
                    help="run `shardbook lock`",
                )
            return
        for name, source in self._lock.sources.items():
            pin = self._pins.get(name)
            if pin is None or (pin.commit and pin.commit != source.commit):
                at = f"`{source.commit[:12]}`"
                yield _about_lock(
                    path,
                    "N211",
                    f'"{source.commit}"',
                    f"the lock is of another commit of `{name}` than the pin",
                    expected=f"`{pin.commit[:12]}`" if pin else "a source of this lab",
                    found=at,
                    help="run `shardbook lock` where git or a mirror can be reached",
                )
        for file in self._evidence.gathered():
            if file.disputed:
                yield _about_lock(
                    path,
                    "N211",
                    f'"{file.path}"',
                    f"the lock has another file for `{file.path}` than the pinned commit",
                    expected="one blob id, whoever delivers the file",
                    found=file.disputed,
                    help="restore the lock from git, or lock again where git or a mirror is",
                )
        for name, citations in self._lock.citations.items():
            locked, pin = self._lock.sources.get(name), self._pins.get(name)
            if locked and (pin is None or pin.commit != locked.commit):
                continue  # said above: the whole source is to be locked again
            for key, citation in citations.items():
                idle = [
                    page
                    for page, times in citation.pages.items()
                    if (page in sound or (every is not None and page not in every))
                    and used[name, key, page] < times
                ]
                if idle:
                    yield _about_lock(
                        path,
                        "N212",
                        f'"{key}"',
                        f"the lock holds `{key}`, which {_names(idle)} cites no more",
                        help="if that is meant, run `shardbook lock`",
                    )


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")


class _Case(msgspec.Struct):
    """One citation on trial, with where it stands."""

    view: View
    cell: Cell
    citation: Citation
    max_lines: int
    times: int
    mend: str | None = None
    once: str = ""  # what the lock knows nearby on this page: where the citation slipped from

    @property
    def page(self) -> str:
        return self.view.page.key

    @property
    def anchors(self) -> set[str]:
        return {name for name in self.cell.names if is_anchor(name)}

    def finding(
        self, code: str, message: str, *, expected: str = "", found: str = "", help: str = ""
    ) -> Finding:
        return Finding(code, self.view.filename, self.citation.span, message, expected, found, help)


def fit_findings(case: _Case, file: CitedFile) -> list[Finding]:
    """Judge a citation's range against the file's own lines."""
    citation, outline = case.citation, file.outline
    assert outline is not None
    if citation.last > outline.lines:
        return [
            case.finding(
                "N205",
                f"`{citation.text}` goes past the end of the file",
                expected=f"lines 1 to {outline.lines}",
                found=f"line {citation.last}",
                help=_mend(case, outline),
            )
        ]
    found = []
    length = citation.last - citation.first + 1
    if length > case.max_lines:
        found.append(
            case.finding(
                "N206",
                f"`{citation.text}` is {length} lines wide",
                expected=f"at most {case.max_lines} lines",
                found=f"{length}",
                help=_mend(case, outline),
            )
        )
    if outline.python:
        found += _structure(case, outline)
        if case.anchors.isdisjoint(outline.names_between(citation.first, citation.last)):
            found.append(_unanchored_finding(case, outline))
    return found


def _structure(case: _Case, outline: Outline) -> list[Finding]:
    citation = case.citation
    crossed = fitting.straddles(outline, citation.first, citation.last)
    if crossed:
        return [
            case.finding(
                "N207",
                f"`{citation.text}` crosses the edge of `{crossed.name}`",
                expected=f"lines of one symbol; `{crossed.name}` is L{crossed.top}-L{crossed.last}",
                found=_touched(outline, citation),
                help=_mend(case, outline),
            )
        ]
    begins = fitting.starts_well(outline, citation.first)
    ends = fitting.ends_well(outline, citation.last)
    if begins and ends:
        return []
    wrong = []
    if not begins:
        wrong.append(f"begins at line {citation.first}, which begins no statement")
    if not ends:
        wrong.append(f"ends at line {citation.last}, which ends none")
    return [
        case.finding(
            "N208",
            f"`{citation.text}` " + " and ".join(wrong),
            expected="the first line of a statement (or of its comment or decorator) to the last "
            "line of one",
            help=_mend(case, outline),
        )
    ]


def _touched(outline: Outline, citation: Citation) -> str:
    first = outline.innermost(citation.first, citation.first)
    last = outline.innermost(citation.last, citation.last)
    names = [f"`{symbol.name}`" if symbol else "the module" for symbol in (first, last)]
    return f"begins in {names[0]}, ends in {names[1]}"


def _unanchored_finding(case: _Case, outline: Outline) -> Finding:
    places = fitting.standing_places(outline, case.anchors)
    where = ", ".join(f"`{name}` at L{row}" for name, row in places)
    stand = f"in this file: {where}; " if where else ""
    return _not_anchored(case, stand + _mend(case, outline))


def _not_anchored(case: _Case, help: str) -> Finding:
    named = _names(sorted(case.anchors)) or "no identifier in code font"
    return case.finding(
        "N209",
        f"nothing that the text names in code font stands in `{case.citation.text}`",
        expected="one identifier of the cited lines, in code font, in the same choice",
        found=named,
        help=help,
    )


def _names(names: list[str]) -> str:
    shown_names = ", ".join(f"`{name}`" for name in names[:6])
    return shown_names + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _mend(case: _Case, outline: Outline) -> str:
    """Say which range would fit, and what the symbol around really is."""
    if case.mend is None:
        case.mend = _search(case, outline)
    return case.mend


def _search(case: _Case, outline: Outline) -> str:
    citation = case.citation
    said = [f"the lock knows `{case.once}` on this page"] if case.once else []
    near = fitting.nearest(outline, citation.first, citation.last, case.max_lines, case.anchors)
    if near:
        said.append(f"nearest that fits: `{written(citation.path, *near)}`")
    middle = min((citation.first + citation.last) // 2, outline.lines)
    symbol = outline.innermost(middle, middle)
    if symbol:
        said.append(f"`{symbol.name}` is L{symbol.top}-L{symbol.last}")
    return "; ".join(said)


def _nowhere(case: _Case, asked: list[CitedFile]) -> Finding:
    citation = case.citation
    near = [path for file in asked for path in file.near][:3]
    closest = "closest: " + ", ".join(f"`{path}`" for path in near) if near else ""
    if asked and all(file.state is State.ABSENT for file in asked):
        return case.finding(
            "N203",
            f"no source has `{citation.path}` at its pin",
            expected="a path from the root of " + " or ".join(f"`{file.source}`" for file in asked),
            help=closest,
        )
    reasons = list(dict.fromkeys(reason for file in asked for reason in file.reasons))
    return case.finding(
        "N213",
        f"`{citation.text}` could not be proved, and the lock doesn't know its file",
        expected="a file that the lock knows, or a provider that has it at the pin",
        found="; ".join(reasons) or "no usable pin",
        help=closest or "check the path; or run where git is reachable, or with --mirror NAME=DIR",
    )


def _content_against_lock(
    case: _Case, file: CitedFile, known: LockedCitation, blob: str
) -> list[Finding]:
    citation = case.citation
    if file.blob != blob or file.sha256_of(citation.first, citation.last) != known.sha256:
        return [
            case.finding(
                "N211",
                f"the lock remembers other lines for `{citation.text}`",
                expected=f"SHA-256 {known.sha256[:12]}… of file {blob[:12]}",
                found=f"SHA-256 {file.sha256_of(citation.first, citation.last)[:12]}… "
                f"of file {file.blob[:12]}",
                help="read the lines again (`shardbook show`), then run `shardbook lock`",
            )
        ]
    if known.anchors and set(known.anchors).isdisjoint(case.cell.names):
        return [
            case.finding(
                "N211",
                f"the lock remembers other anchors for `{citation.text}`",
                expected=_names(known.anchors),
                found=_names(sorted(case.anchors)),
                help="run `shardbook lock`",
            )
        ]
    return []


def _nearest_locked(lock: Lock, file: CitedFile, citation: Citation, page: str) -> str:
    best: tuple[int, str] | None = None
    for key, known in lock.citations.get(file.source, {}).items():
        path, _, lines = key.rpartition(":L")
        first = lines.split("-")[0]
        if path == citation.path and first.isdigit() and page in known.pages:
            distance = abs(int(first) - citation.first)
            if best is None or distance < best[0]:
                best = (distance, key)
    return best[1] if best and best[0] <= 60 else ""


def _about_lock(
    path: Path,
    code: str,
    needle: str,
    message: str,
    *,
    expected: str = "",
    found: str = "",
    help: str,
) -> Finding:
    span = TOP
    for row, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        at = line.find(needle)
        if at >= 0:
            span = Span(row, at + 1, row, at + 1 + len(needle))
            break
    return Finding(code, shown(path), span, message, expected, found, help)
