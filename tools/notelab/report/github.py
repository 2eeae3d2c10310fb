"""The report for a code host's checks: one workflow command per finding."""

from notelab.errors import sanitize
from notelab.report.outcome import Report


def write(report: Report) -> str:
    """Return the findings as `::error …` lines."""
    lines = []
    for finding in report.findings:
        span = finding.span
        place = (
            f"file={_escape_property(finding.filename)},line={span.row},col={span.column},"
            f"endLine={span.end_row},endColumn={span.end_column},"
            f"title={_escape_property(f'{finding.code} {finding.name}')}"
        )
        details = [sanitize(line) for line in (finding.message, *finding.details)]
        lines.append(f"::error {place}::{_escape_message(chr(10).join(details))}\n")
    return "".join(lines)


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(sanitize(text)).replace(":", "%3A").replace(",", "%2C")
