"""The report in the format that the user chose: text, or one of those for programs.

`json` is one object with `findings`, `warnings`, `notes` and `labs`. `github` is for a code host's
checks: one workflow command per finding. `sarif` is for an archive of scans: SARIF 2.1.0.
"""

from typing import Any

import msgspec

from notelab import __version__
from notelab.codes import RULES
from notelab.errors import escape_json, sanitize
from notelab.finding import Finding
from notelab.report import text
from notelab.report.outcome import Report
from notelab.report.terminal import wants_colour


def render_report(report: Report, output_format: str, detail: text.Detail = "line") -> str:
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
    return text.write(report, colour=wants_colour(), detail=detail)


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
