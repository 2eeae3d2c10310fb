"""For a program: one JSON object with `findings`, `notes` and `labs`."""

import msgspec

from notelab.errors import escaped
from notelab.report.finding import Finding
from notelab.report.outcome import Report


def write(report: Report) -> str:
    """Return the report as JSON text."""
    findings = [_finding(finding) for finding in report.findings]
    return indented({"findings": findings, "notes": report.notes, "labs": report.labs})


def _finding(finding: Finding) -> dict[str, object]:
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


def indented(value: object) -> str:
    """Return what every command writes as JSON: one object, over several lines."""
    return escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"
