"""report.md: what the stages found, as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from costlab.gpu_report.stages import STAGES

_MARKS = {True: "ok", False: "**failed**", None: ""}


def markdown(report: Mapping[str, Any]) -> str:
    """Return the page of a report, finished or not."""
    stand_in = " (the processor stands in for GPUs)" if report["device"] == "cpu" else ""
    lines = [
        "# GPU report",
        "",
        f"Commit {report['commit']}, device {report['device']}{stand_in}.",
        "",
        "| stage | what it tries | state | s | checks | failed |",
        "|---|---|---|--:|--:|--:|",
    ]
    for stage in STAGES:
        one = report["stages"].get(stage.name)
        lines.append(f"| {stage.name} | {stage.says} | {_summary(one)} |")
    for stage in STAGES:
        if one := report["stages"].get(stage.name):
            lines += _section(stage.name, one)
    return "\n".join(lines) + "\n"


def _summary(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "not run | | | "
    checks = [row["ok"] for row in one["rows"] if row["ok"] is not None]
    return f"{one['state']} | {one['seconds']} | {len(checks)} | {checks.count(False)}"


def _section(name: str, one: Mapping[str, Any]) -> Sequence[str]:
    rows = sorted(one["rows"], key=lambda row: row["ok"] is not False)  # what failed, first
    lines = ["", f"## {name}: {one['state']}", ""]
    if rows:
        lines += ["| what | seen | |", "|---|---|---|"]
        lines += [
            f"| {_cell(row['what'])} | {_cell(row['seen'])} | {_MARKS[row['ok']]} |" for row in rows
        ]
    if one.get("tail"):
        lines += ["", "The end of its output:", "", "````text", one["tail"], "````"]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
