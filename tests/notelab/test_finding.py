"""Findings come in one order, whoever found them first."""

from notelab.finding import TOP, Finding
from notelab.report.outcome import Report


def test_what_several_labs_find_at_one_place_comes_in_one_order() -> None:
    # As two labs that judge one page, each with a lock of its own.
    findings = [Finding("N210", "a.md", TOP, "no", expected=f"lock {i:02}") for i in range(40)]
    report = Report(findings=findings[20:])
    report.add(Report(findings=findings[:20]))
    assert report.findings == findings
