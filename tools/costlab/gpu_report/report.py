"""A report: its stages, in order of what one would miss first, and the page of what they found."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MARKS = {True: "ok", False: "**failed**", None: ""}


@dataclass(frozen=True)
class Stage:
    """One stage: a process of its own.

    Attributes:
        name: also of its log.
        says: what it tries.
        limit: seconds.
        logged: whether its output is kept in a file, beside what the report says of it.
    """

    name: str
    says: str
    limit: int
    logged: bool = True

    def command(self, device: str) -> list[str]:
        """Return what to start."""
        return [sys.executable, "-m", "costlab.gpu_report", self.name, device]


STAGES = (
    # Its output stands in the report.
    Stage(
        "probe", "driver, torch, NCCL, clocks, topology, what can't be imported", 90, logged=False
    ),
    Stage("smoke", "every collective, dtype and size against sums of the CPU; a killed rank", 240),
    Stage("tests", "the kernels' own tests", 390),
    Stage("train", "lab 01's losses on every grid; a GPT in bf16: tokens/s, MFU, memory", 330),
    # It leaves bench.json, and its samples.
    Stage("bench", "tools/bench, quick", 420, logged=False),
    Stage("matrix", "torch.compile, autocast and checkpointing, alone and together", 210),
)


def markdown(report: Mapping[str, Any]) -> str:
    """Return report.md, of a report that is finished or not."""
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
        stage_report = report["stages"].get(stage.name)
        lines.append(f"| {stage.name} | {stage.says} | {_summary(stage_report)} |")
    for stage in STAGES:
        if stage_report := report["stages"].get(stage.name):
            lines += _section(stage.name, stage_report)
    return "\n".join(lines) + "\n"


def _summary(stage_report: Mapping[str, Any] | None) -> str:
    if stage_report is None:
        return "not run | | | "
    checks = [row["ok"] for row in stage_report["rows"] if row["ok"] is not None]
    state, seconds = stage_report["state"], stage_report["seconds"]
    return f"{state} | {seconds} | {len(checks)} | {checks.count(False)}"


def _section(name: str, stage_report: Mapping[str, Any]) -> Sequence[str]:
    rows = sorted(
        stage_report["rows"], key=lambda row: row["ok"] is not False
    )  # what failed, first
    lines = ["", f"## {name}: {stage_report['state']}", ""]
    if rows:
        lines += ["| what | seen | |", "|---|---|---|"]
        lines += [
            f"| {_cell(row['what'])} | {_cell(row['seen'])} | {_MARKS[row['ok']]} |" for row in rows
        ]
    if stage_report.get("tail"):
        lines += ["", "The end of its output:", "", "````text", stage_report["tail"], "````"]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
