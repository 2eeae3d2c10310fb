"""Formats a report as the user chose: as text for people, or for programs.

`json` is one object with `findings`, `warnings`, `notes` and `labs`. `github` is for a code host's
checks: one workflow command per finding. `sarif` is for an archive of scans: SARIF 2.1.0.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec

from notelab import __version__
from notelab.codes import RULES
from notelab.errors import escape_json, sanitize
from notelab.finding import Finding
from notelab.report.outcome import LabReport, NoteReport, Report, SourceReport
from notelab.report.terminal import format_count, wants_colour
from notelab.sources.answers import WORKTREE

_STYLES = {"place": "\x1b[1m", "code": "\x1b[31;1m", "dim": "\x1b[2m", "good": "\x1b[32;1m"}


Detail = Literal["findings", "line", "labs", "tables"]
Painter = Callable[[str, str], str]  # takes a style and a text; colours text for terminals


def write(report: Report, *, colour: bool, detail: Detail = "line") -> str:
    """Return the report as text.

    `detail` is what it says of the labs: nothing (`findings`), one line of them all (`line`), also
    a line a lab (`labs`), or a table a lab (`tables`). A lab in progress has its table by default.
    """

    def paint(style: str, text: str) -> str:
        return f"{_STYLES[style]}{text}\x1b[0m" if colour else text

    lines: list[str] = []
    for finding in report.findings:
        lines += _format_finding(finding, paint)
    if detail == "findings":
        return "".join(f"{line}\n" for line in lines)
    for warning in report.warnings:
        lines += _format_finding(warning, paint, "warning: ")
    if lines:
        lines.append("")
    for lab in report.labs:
        if detail == "tables" or (lab.in_progress and detail == "line"):
            notes = [note for note in report.notes if note.lab == lab.folder]
            lines += _format_lab(lab, notes, paint)
        elif detail == "labs":
            lines.append(sanitize(f"{lab.folder}: {', '.join(_format_counts([lab]))}"))
    if report.to_do:
        lines.append(paint("dim", "to do, in labs in progress:"))
        lines += [line for finding in report.to_do for line in _format_finding(finding, paint)[:1]]
        lines.append("")
    if detail != "tables" and any(lab.locked for lab in report.labs):
        lines.append(paint("dim", "`-v` says why citations were checked against the lock only"))
    lines.append(_format_summary(report, paint))
    lines += [] if report.findings else _suggest_next(report)
    return "\n".join(lines) + "\n"


def _suggest_next(report: Report) -> list[str]:
    """Return what comes next for each own lab without findings, until that is done."""
    ready = [lab for lab in report.labs if lab.compares and not lab.to_do]
    ready = [lab for lab in ready if lab.in_progress or not lab.committed]
    flag = "take `in-progress` out of its lab.toml, "
    return [
        sanitize(
            f"next: {flag if lab.in_progress else ''}commit {lab.folder}, "
            f"then `shardbook compare {lab.folder}`"
        )
        for lab in ready
        if lab.citations
    ]


def _format_finding(finding: Finding, paint: Painter, level: str = "") -> list[str]:
    place = f"{finding.filename}:{finding.span.row}:{finding.span.column}"
    head = f"{paint('place', sanitize(place))} {paint('code', finding.code)}"
    lines = [f"{head} {level}{sanitize(finding.message)}"]
    for label, text in (
        ("expected", finding.expected),
        ("found", finding.found),
        *(("help", part) for part in finding.help.split("; ")),
    ):
        if text:
            lines.append(f"    {paint('dim', f'{label:<8}')} {sanitize(text)}")
    return lines


def _format_lab(lab: LabReport, notes: list[NoteReport], paint: Painter) -> list[str]:
    lines = [
        paint("place", sanitize(lab.title)),
        paint("dim", sanitize(f"  {lab.folder}/")),
    ]
    for source in lab.sources:
        if source.files or not source.commit:
            lines += _format_source(source, paint)
    if notes:
        lines += ["", *_format_table(notes, paint)]
    if lab.lock_only:
        heading = "checked against the lock only, because the text was not available"
        counts = {name: format_count(n, "citation") for name, n in lab.lock_only.items()}
        lines += _list_files(heading, counts, paint)
    if lab.unparsed:
        heading = "without a structure rule, so that only names hold the lines"
        reasons = {
            name: f"{format_count(file.citations, 'citation')}: {file.reason}"
            for name, file in lab.unparsed.items()
        }
        lines += _list_files(heading, reasons, paint)
    if lab.unread_for_paste:
        unread = format_count(lab.unread_for_paste, "file")
        text = f"  pasted source was not looked for in {unread}, whose text was not available"
        lines.append(paint("dim", text))
    return [*lines, ""]


def _list_files(heading: str, files: Mapping[str, str], paint: Painter) -> list[str]:
    """Return a heading and at most ten files, each with what is to be said of it."""
    lines = [f"  {name}  {text}" for name, text in islice(files.items(), 10)]
    lines += [f"  and {format_count(len(files) - 10, 'file')} more"] if len(files) > 10 else []
    return ["", f"  {heading}:", *(paint("dim", sanitize(f"  {line}")) for line in lines)]


def _format_source(source: SourceReport, paint: Painter) -> list[str]:
    commit = "working tree" if source.commit == WORKTREE else source.commit[:12] or "no pin"
    release = f" ({source.release})" if source.release else ""
    by_provider = ", ".join(
        f"{count} by {name}" for name, count in sorted(source.providers.items())
    )
    proved = f"{source.proved} of {source.files} files available" + (
        f": {by_provider}" if by_provider else ""
    )
    lines = [sanitize(f"  {source.name:<10} {commit}{release}  {proved}")]
    for lock, count in source.vouched.items():
        line = f"    {format_count(count, 'file')} vouched for by {lock}"
        lines.append(paint("dim", sanitize(line)))
    reasons = (part for reason in source.reasons for part in reason.split("; "))
    return lines + [paint("dim", sanitize(f"    {part}")) for part in reasons]


# Headings and fields; together with the widest page name they fit into 80 columns.
_COLUMNS = {
    "words": "words", "choices": "choices", "cited": "citations", "proved": "proved",
    "locked": "locked", "diagrams": "diagrams",
}  # fmt: skip


def _format_table(notes: list[NoteReport], paint: Painter) -> list[str]:
    """Return a line per page, grouped by folder, or one line of sums for more than 40 pages."""
    names = [note.filename.rpartition("/") for note in notes]
    width = max(len(f"  {name}") for _, _, name in names)
    width = max(width, *(len(folder) + 1 for folder, _, _ in names), len(f"{len(notes)} pages"))

    def line(title: str, numbers: Iterable[object]) -> str:
        cells = zip(_COLUMNS, numbers, strict=True)
        return f"  {sanitize(title):<{width}}" + "".join(f"{n:>{len(c) + 1}}" for c, n in cells)

    head = paint("dim", line("", _COLUMNS))
    if len(notes) > 40:
        sums = [sum(getattr(note, field) for note in notes) for field in _COLUMNS.values()]
        return [head, line(f"{len(notes)} pages", sums)]
    lines, current_folder = [head], None
    for note, (folder, slash, name) in zip(notes, names, strict=True):
        if folder != current_folder:
            lines.append(f"  {sanitize(folder + slash)}")
            current_folder = folder
        numbers = (getattr(note, field) for field in _COLUMNS.values())
        lines.append(line(f"  {name}", numbers))
        lines += [paint("dim", f"      {limits}")] if (limits := _format_limits(note)) else []
    return lines


def _format_limits(note: NoteReport) -> str:
    """Return how far a note is from its limits."""
    limits = [
        f"{note.cited_choices} of {note.min_choices} choices" if note.min_choices else "",
        f"{note.words} of {note.max_words} words" if note.max_words else "",
    ]
    return ", ".join(filter(None, limits))


def _format_summary(report: Report, paint: Painter) -> str:
    waived = sum(lab.waived for lab in report.labs)
    parts = [
        *_format_counts(report.labs),
        format_count(len(report.findings), "finding"),
        f"{len(report.to_do)} to do" if report.to_do else "",
        format_count(len(report.warnings), "warning") if report.warnings else "",
        f"{waived} waived" if waived else "",
        f"{report.baselined} in the baseline" if report.baselined else "",
    ]
    return paint("code" if report.findings else "good", ", ".join(filter(None, parts)))


def _format_counts(labs: list[LabReport]) -> list[str]:
    """Return what was counted and proved in some labs."""
    fields = ("notes", "citations", "proved", "by_wheel", "unstructured", "locked", "unjudged")
    sums = (sum(getattr(lab, field) for lab in labs) for field in (*fields, "diagrams"))
    pages, citations, proved, by_wheel, unstructured, locked, unjudged, diagrams = sums
    parts = [
        format_count(pages, "page"),
        f"{format_count(citations, 'citation')}: {proved} proved"
        + (f" ({proved - by_wheel} by git, {by_wheel} on a wheel's word)" if by_wheel else ""),
        f"{unstructured} of them in files without a structure rule ({_name_unparsed(labs)})"
        if unstructured
        else "",
        f"{locked} checked against the lock only" if locked else "",
        f"{unjudged} × looks like a citation, not judged" if unjudged else "",
        format_count(diagrams, "diagram"),
    ]
    return [part for part in parts if part]


def _name_unparsed(labs: list[LabReport]) -> str:
    names = sorted({name for lab in labs for name in lab.unparsed})
    more = f" and {len(names) - 3} more; `-v` has all" if len(names) > 3 else ""
    return ", ".join(map(sanitize, names[:3])) + more


def render_report(report: Report, output_format: str, detail: Detail = "line") -> str:
    """Return a report as text, json, github or sarif; `detail` is what text says of the labs."""
    match output_format:
        case "json":
            findings = [_finding_to_dict(finding) for finding in report.findings]
            rest = {"notes": report.notes, "labs": report.labs}
            warnings = [_finding_to_dict(finding) for finding in report.warnings]
            return format_json({"findings": findings, "warnings": warnings, **rest})
        case "github":
            errors = [_format_workflow_command("error", each) for each in report.findings]
            return "".join(
                errors + [_format_workflow_command("warning", each) for each in report.warnings]
            )
        case "sarif":
            return format_json(_build_sarif_log(report))
    return write(report, colour=wants_colour(), detail=detail)


def format_json(value: object) -> str:
    """Return a value as every command prints JSON: one object over several lines."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"


def _finding_to_dict(finding: Finding) -> dict[str, object]:
    span = finding.span
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "filename": finding.filename,
        "location": {"row": span.row, "column": span.column},
        "end_location": {"row": span.end_row, "column": span.end_column},
        "expected": finding.expected,
        "found": finding.found,
        "help": finding.help,
    }


def _format_workflow_command(level: str, finding: Finding) -> str:
    """Return a finding as a line `::error …`; its message ends with the fix."""
    span = finding.span
    place = (
        f"file={_escape_property(finding.filename)},line={span.row},col={span.column},"
        f"endLine={span.end_row},endColumn={span.end_column},"
        f"title={_escape_property(f'{finding.code} {finding.name}')}"
    )
    details = [sanitize(line) for line in (finding.message, *finding.details)]
    return f"::{level} {place}::{_escape_message(chr(10).join(details))}\n"


def _escape_message(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(value: str) -> str:
    return _escape_message(sanitize(value)).replace(":", "%3A").replace(",", "%2C")


def _build_sarif_log(report: Report) -> dict[str, Any]:
    rules = [{"id": code, "name": name} for code, name in RULES.items()]
    driver = {"name": "shardbook", "version": __version__, "rules": rules}
    results = [_finding_to_result("error", finding) for finding in report.findings]
    results += [_finding_to_result("warning", finding) for finding in report.warnings]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }


def _finding_to_result(level: str, finding: Finding) -> dict[str, Any]:
    from urllib.parse import quote

    span = finding.span
    region = {
        "startLine": span.row,
        "startColumn": span.column,
        "endLine": span.end_row,
        "endColumn": max(span.end_column, 1),
    }
    artifact = {"uri": quote(finding.filename)}
    return {
        "ruleId": finding.code,
        "ruleIndex": list(RULES).index(finding.code),
        "level": level,
        "message": {"text": "\n".join([finding.message, *finding.details])},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }
