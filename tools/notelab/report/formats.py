"""Renders a report in the format that the user chose."""

from importlib import import_module

from notelab.report.outcome import Report
from notelab.report.terminal import wants_colour


def render_report(report: Report, output_format: str, *, quiet: bool) -> str:
    """Return a report as text, json, github or sarif; `quiet` omits the text format's summary."""
    module = import_module(f"notelab.report.{output_format}")
    options = {"colour": wants_colour(), "findings_only": quiet} if output_format == "text" else {}
    return str(module.write(report, **options))
