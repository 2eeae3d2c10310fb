"""The report continues after any failed stage, keeps all rows and names the stages not run."""

from __future__ import annotations

import json
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from costlab.gpu_report import report as reports
from costlab.gpu_report import runner
from tests.running import run_program

ROOT = Path(__file__).parents[3]
ROW = "from costlab.gpu_report.report import tell; tell('first', 'seen', ok=True)\n"


@dataclass(frozen=True)
class PlannedStage(reports.Stage):
    """A stage whose program is written by the test."""

    program: str = ROW

    def command(self, device: str) -> list[str]:
        return [sys.executable, "-c", self.program]


def run_stages(
    monkeypatch: pytest.MonkeyPatch, out: Path, *planned: PlannedStage, more: tuple[str, ...] = ()
) -> int:
    monkeypatch.setattr(runner, "STAGES", planned)
    monkeypatch.setattr(runner, "LEAST", 0)
    return runner.main(["--device", "cpu", "--out", str(out), *more])


def read_report(out: Path) -> dict[str, Any]:
    stages: dict[str, Any] = json.loads((out / "report.json").read_text())["stages"]
    return stages


def test_no_stage_stops_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One raises, one is killed by its kernel, one finds a fault, one says nothing."""
    assert run_stages(
        monkeypatch, tmp_path,
        PlannedStage("raises", "", 60, program=ROW + "raise ValueError('bad batch 17')"),
        PlannedStage("dies", "", 60, program=ROW + "import os; os.kill(os.getpid(), 9)"),
        PlannedStage("finds", "", 60, program=ROW.replace("True", "False")),
        PlannedStage("silent", "", 60, program="pass"),
        PlannedStage("passes", "", 60),
    ) == 1  # fmt: skip
    stages = read_report(tmp_path)
    states = {name: stage["state"] for name, stage in stages.items()}
    failed = dict.fromkeys(("raises", "dies", "finds", "silent"), "failed")
    assert states == {**failed, "passes": "passed"}
    assert [len(stage["rows"]) for stage in stages.values()] == [1, 1, 1, 0, 1]
    assert "bad batch 17" in stages["raises"]["tail"]


@pytest.mark.ci
def test_a_stage_that_hangs_is_ended_with_what_it_started_and_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    assert run_stages(monkeypatch, tmp_path, PlannedStage("hangs", "", 5, program=ROW + child)) == 1
    assert read_report(tmp_path)["hangs"]["state"] == "out of time"
    assert read_report(tmp_path)["hangs"]["rows"] == [{"what": "first", "seen": "seen", "ok": True}]


def test_it_goes_on_with_what_is_not_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = PlannedStage("one", "", 60), PlannedStage("two", "", 60)
    assert run_stages(monkeypatch, tmp_path, first) == 0
    before = read_report(tmp_path)["one"]
    broken = PlannedStage("one", "", 60, program="raise SystemExit(1)")
    assert run_stages(monkeypatch, tmp_path, broken, second) == 0
    assert read_report(tmp_path)["one"] == before
    assert read_report(tmp_path)["two"]["state"] == "passed"


def test_a_spent_budget_is_said_of_each_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned = (PlannedStage("one", "", 60), PlannedStage("two", "", 60))
    for module in (runner, reports):
        monkeypatch.setattr(module, "STAGES", planned)
    runner.main(["--device", "cpu", "--out", str(tmp_path), "--budget", "1s"])
    assert {stage["state"] for stage in read_report(tmp_path).values()} == {"not run"}
    assert (tmp_path / "report.md").read_text().count("| not run |") == 2


def test_the_report_of_another_device_is_not_mixed_with_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stages(monkeypatch, tmp_path, PlannedStage("one", "", 60))
    before = (tmp_path / "report.json").read_text()
    with pytest.raises(SystemExit, match="2"):
        runner.main(["--device", "cuda", "--out", str(tmp_path)])
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "report.json").read_text() == before


def test_a_stage_whose_package_is_missing_is_skipped_and_runs_once_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without = "import sys; sys.modules['pytest'] = None\n"
    call = "from costlab.gpu_report.stages import run_tests; sys.exit(run_tests('cpu'))"
    assert (
        run_stages(monkeypatch, tmp_path, PlannedStage("tests", "", 60, program=without + call))
        == 0
    )
    assert read_report(tmp_path)["tests"]["state"] == "skipped"
    assert "--wheels" in read_report(tmp_path)["tests"]["rows"][0]["seen"]
    assert run_stages(monkeypatch, tmp_path, PlannedStage("tests", "", 60)) == 0
    assert read_report(tmp_path)["tests"]["state"] == "passed"


def test_wheels_of_a_folder_are_there_for_each_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "lent-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lent_for_a_test.py", "")
    lent = PlannedStage("lent", "", 60, program="import lent_for_a_test\n" + ROW)
    assert run_stages(monkeypatch, tmp_path / "out", lent, more=("--wheels", str(wheels))) == 0


def test_a_python_without_anything_gets_a_report_that_says_so(tmp_path: Path) -> None:
    """As it is met: an image that can't be changed, and nothing of ours in it."""
    venv.create(tmp_path / "bare", symlinks=True)
    command = [tmp_path / "bare/bin/python", ROOT / "tools/gpu-report", "--device", "cpu"]
    command += ["--stage", "probe", "--out", tmp_path / "out"]
    done = run_program(command, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    text = (tmp_path / "out/report.md").read_text()
    assert "No module named 'torch'; without it: everything | **failed**" in text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--budget", "soon"], "'soon' is no time: write 28m or 900s"),
        (["--wheels", "nowhere"], "there is no folder nowhere"),
        (["--stage", "all"], "invalid choice"),
    ],
)
def test_what_it_cannot_read_is_refused_in_a_line(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        runner.main(options)
    assert why in capsys.readouterr().err
