"""For a program: one JSON object with `findings`, `notes` and `labs`."""

from typing import Any

import msgspec

from notelab.report.finding import Finding
from notelab.report.outcome import Report


def as_data(report: Report) -> dict[str, Any]:
    """Return the report as plain tables."""
    return {
        "findings": [_finding(finding) for finding in report.findings],
        "notes": msgspec.to_builtins(report.notes),
        "labs": msgspec.to_builtins(report.labs),
    }


def _finding(finding: Finding) -> dict[str, Any]:
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


def write(report: Report) -> str:
    """Return the report as JSON text."""
    return indented(as_data(report))


def indented(value: object) -> str:
    """Return what every command writes as JSON: one object, over several lines."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
