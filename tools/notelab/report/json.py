"""The report for a program: one JSON object with `findings`, `notes` and `labs`."""

import msgspec

from notelab.errors import escape_json
from notelab.report.finding import Finding
from notelab.report.outcome import Report


def write(report: Report) -> str:
    """Return the report as JSON text."""
    findings = [_finding_to_dict(finding) for finding in report.findings]
    return format_json({"findings": findings, "notes": report.notes, "labs": report.labs})


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


def format_json(value: object) -> str:
    """Return a value as every command prints JSON: one object over several lines."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"
