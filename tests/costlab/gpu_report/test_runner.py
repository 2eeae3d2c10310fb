"""The report goes through whatever happens to a stage, loses no row, and says what wasn't tried."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from costlab.gpu_report import report as reports
from costlab.gpu_report import runner

ROOT = Path(__file__).parents[3]
ROW = "from costlab.gpu_report.rows import tell; tell('first', 'seen', ok=True)\n"


@dataclass(frozen=True)
class Planned(reports.Stage):
    """A stage whose program the test writes."""

    program: str = ROW

    def command(self, device: str) -> list[str]:
        return [sys.executable, "-c", self.program]


def run(
    monkeypatch: pytest.MonkeyPatch, out: Path, *planned: Planned, more: tuple[str, ...] = ()
) -> int:
    monkeypatch.setattr(runner, "STAGES", planned)
    monkeypatch.setattr(runner, "LEAST", 0)
    return runner.main(["--device", "cpu", "--out", str(out), *more])


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "report.json").read_text())["stages"]
    return found


def test_no_stage_stops_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One raises, one is killed by its kernel, one finds a fault, one says nothing."""
    assert run(
        monkeypatch, tmp_path,
        Planned("raises", "", 60, program=ROW + "raise ValueError('bad batch 17')"),
        Planned("dies", "", 60, program=ROW + "import os; os.kill(os.getpid(), 9)"),
        Planned("finds", "", 60, program=ROW.replace("True", "False")),
        Planned("silent", "", 60, program="pass"),
        Planned("passes", "", 60),
    ) == 1  # fmt: skip
    found = report(tmp_path)
    states = {name: one["state"] for name, one in found.items()}
    failed = dict.fromkeys(("raises", "dies", "finds", "silent"), "failed")
    assert states == {**failed, "passes": "passed"}
    assert [len(one["rows"]) for one in found.values()] == [1, 1, 1, 0, 1]
    assert "bad batch 17" in found["raises"]["tail"]


@pytest.mark.ci
def test_a_stage_that_hangs_is_ended_with_what_it_started_and_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    assert run(monkeypatch, tmp_path, Planned("hangs", "", 5, program=ROW + child)) == 1
    assert report(tmp_path)["hangs"]["state"] == "out of time"
    assert report(tmp_path)["hangs"]["rows"] == [{"what": "first", "seen": "seen", "ok": True}]


def test_it_goes_on_with_what_is_not_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, two = Planned("one", "", 60), Planned("two", "", 60)
    assert run(monkeypatch, tmp_path, one) == 0
    before = report(tmp_path)["one"]
    broken = Planned("one", "", 60, program="raise SystemExit(1)")
    assert run(monkeypatch, tmp_path, broken, two) == 0
    assert report(tmp_path)["one"] == before
    assert report(tmp_path)["two"]["state"] == "passed"


def test_a_spent_budget_is_said_of_each_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned = (Planned("one", "", 60), Planned("two", "", 60))
    for module in (runner, reports):
        monkeypatch.setattr(module, "STAGES", planned)
    runner.main(["--device", "cpu", "--out", str(tmp_path), "--budget", "1s"])
    assert {one["state"] for one in report(tmp_path).values()} == {"not run"}
    assert (tmp_path / "report.md").read_text().count("| not run |") == 2


def test_the_report_of_another_device_is_not_mixed_with_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path, Planned("one", "", 60))
    before = (tmp_path / "report.json").read_text()
    with pytest.raises(SystemExit, match="2"):
        runner.main(["--device", "cuda", "--out", str(tmp_path)])
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "report.json").read_text() == before


def test_wheels_of_a_folder_are_there_for_each_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "lent-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lent_for_a_test.py", "")
    lent = Planned("lent", "", 60, program="import lent_for_a_test\n" + ROW)
    assert run(monkeypatch, tmp_path / "out", lent, more=("--wheels", str(wheels))) == 0


def test_a_python_without_anything_gets_a_report_that_says_so(tmp_path: Path) -> None:
    """As it is met: an image that can't be changed, and nothing of ours in it."""
    venv.create(tmp_path / "bare", symlinks=True)
    done = subprocess.run(
        [tmp_path / "bare/bin/python", ROOT / "tools/gpu-report", "--device", "cpu", "--stage",
         "probe", "--out", tmp_path / "out"],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
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
