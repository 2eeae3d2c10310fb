"""A report in the format that was asked for."""

from notelab.report.outcome import Report
from notelab.report.terminal import colour


def written(report: Report, output_format: str, *, quiet: bool) -> str:
    """Return a report as text, json, github or sarif; `quiet` leaves the text's summary out."""
    if output_format == "json":
        from notelab.report import json as writer

        return writer.write(report)
    if output_format == "github":
        from notelab.report import github

        return github.write(report)
    if output_format == "sarif":
        from notelab.report import sarif

        return sarif.write(report)
    from notelab.report import text

    return text.write(report, colour=colour(), findings_only=quiet)
