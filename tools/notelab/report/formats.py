"""A report in the format that was asked for."""

from importlib import import_module

from notelab.report.outcome import Report
from notelab.report.terminal import colour


def written(report: Report, output_format: str, *, quiet: bool) -> str:
    """Return a report as text, json, github or sarif; `quiet` leaves the text's summary out."""
    writer = import_module(f"notelab.report.{output_format}")
    options = {"colour": colour(), "findings_only": quiet} if output_format == "text" else {}
    return str(writer.write(report, **options))
