"""For a code host's own checks: one workflow command a finding."""

from notelab.errors import sanitize
from notelab.report.outcome import Report


def write(report: Report) -> str:
    """Return the findings as `::error …` lines."""
    lines = []
    for finding in report.findings:
        span = finding.span
        place = (
            f"file={_property(finding.filename)},line={span.row},col={span.column},"
            f"endLine={span.end_row},endColumn={span.end_column},"
            f"title={_property(f'{finding.code} {finding.name}')}"
        )
        details = [sanitize(line) for line in (finding.message, *finding.details)]
        lines.append(f"::error {place}::{_message(chr(10).join(details))}\n")
    return "".join(lines)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
