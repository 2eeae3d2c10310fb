"""The bench's stage requires metrics of each section, except a GPU's section on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from costlab.gpu_report import report, stages


@pytest.mark.parametrize(
    ("device", "outcomes"), [("cpu", {"one-gpu": None, "tp": False}), ("cuda", {"one-gpu": False})]
)
def test_a_section_without_metrics_fails_unless_it_is_a_gpus_and_there_is_none(
    device: str, outcomes: dict[str, bool | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = {"status": "complete", "metrics": [], "note": ""}

    def started(_: list[str]) -> SimpleNamespace:
        (tmp_path / "bench.json").write_text(
            json.dumps({"sections": dict.fromkeys(outcomes, empty)})
        )
        return SimpleNamespace(wait=lambda _: 0)

    monkeypatch.setenv(report.OUT, str(tmp_path))
    monkeypatch.setenv(report.FILE, str(tmp_path / "rows"))
    monkeypatch.setattr("costlab.gpu_report.stages.subprocess.Popen", started)
    stages.run_bench(device)
    reported = {str(row["what"]): row["ok"] for row in report.read(tmp_path / "rows")}
    assert {name: reported[name] for name in outcomes} == outcomes
