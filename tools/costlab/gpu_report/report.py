"""A report: its stages, what a stage finds, and the page of it.

A stage writes each finding, a row, down at once: a stage that is killed keeps its rows.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "SHARDBOOK_ROWS"
SECONDS = "SHARDBOOK_SECONDS"
OUT = "SHARDBOOK_OUT"
SKIPPED = 77  # exit status of a stage that lacks a package
_BEGAN = time.monotonic()
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
    # Their output stands in the report.
    Stage(
        "probe", "torch's own report on its environment; what can't be imported", 90, logged=False
    ),
    Stage("tests", "the kernels' own tests", 420),
    Stage("train", "lab 01's losses on every grid; a GPT in bf16: tokens/s, MFU, memory", 420),
    # It leaves bench.json, and its samples.
    Stage("bench", "tools/bench, quick", 600, logged=False),
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
    # What failed, first.
    rows = sorted(stage_report["rows"], key=lambda row: row["ok"] is not False)
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


def tell(what: str, seen: object, *, ok: bool | None = None) -> None:
    """Write a row.

    Args:
        what: was tried or asked.
        seen: what came of it, in a line.
        ok: whether that is as it must be; None for what is only said.
    """
    row = {"what": what, "seen": " ".join(str(seen).split())[:400], "ok": ok}
    mark = {True: "ok", False: "FAILED", None: "-"}[ok]
    print(f"{time.monotonic() - _BEGAN:6.1f} s {mark:6} {what}: {row['seen']}", flush=True)
    if FILE in os.environ:
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")


def read(file: Path) -> list[dict[str, object]]:
    """Return the rows of a stage; the last may have been cut off."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"a row was cut off: {line[:60]}", file=sys.stderr)
    return rows


def seconds_left(share: float = 1.0) -> float:
    """Return how long this stage may still take, if it may take `share` of its time."""
    return float(os.environ.get(SECONDS, "600")) * share - (time.monotonic() - _BEGAN)
