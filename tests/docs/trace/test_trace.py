"""A recorded step is condensed correctly, and the data hold what theory 10 says of them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pages.trace import RECORD, read_step
from shardlab.comm import World
from sitelab.figures.trace import overlap
from tests.docs.page import ROOT
from tests.limits import LIMIT
from tests.shardlab.labs.lab_pages import TRAIN, script


def make_event(name: str, start: float, length: float, thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start, "dur": length, "pid": 1, "tid": thread}


def test_phases_are_told_and_what_is_inside_or_close_is_drawn_as_one(tmp_path: Path) -> None:
    trace_events = [
        make_event("aten::linear", 1000, 100),
        make_event("aten::addmm", 1010, 80),  # inside
        make_event("aten::gelu", 1120, 30),  # close by
        make_event("gloo:all_reduce", 1200, 300, thread=7),
        make_event("autograd::engine::evaluate_function: x", 1600, 200),
        make_event("aten::mm", 1610, 180),
        make_event("aten::mm", 1640, 20, thread=7),  # not the main thread's
        make_event("Optimizer.step#AdamW.step", 1900, 100),
        make_event("aten::add_", 1910, 20),
        {"ph": "M", "name": "process_name"},
    ]
    (tmp_path / "rank-0.json").write_text(json.dumps({"traceEvents": trace_events}))
    assert read_step(tmp_path) == [
        {
            "compute": [(0, 150, "forward"), (610, 790, "backward"), (910, 930, "update")],
            "collectives": [(200, 500, "all_reduce")],
        }
    ]


def test_theory_10_counts_what_was_recorded() -> None:
    ranks = json.loads(RECORD.read_text("utf-8"))["ranks"]
    for rank in ranks:
        names = [what for *_, what in rank["collectives"]]
        assert names == ["all_reduce"] * 9 + ["all_gather"] + ["all_reduce"] * 10
        assert overlap(rank["compute"], rank["collectives"]) == 0  # plain: nothing is hidden
    durations, other_durations = ([b - a for a, b, _ in rank["collectives"]] for rank in ranks)
    longest = durations.index(max(durations))
    assert other_durations[longest] > durations[longest] / 2  # long on both: no rank was late
    assert min(durations[:9]) < 400  # µs, as the bench's


@pytest.mark.parametrize("page", ["10-reading-a-trace.md", "10-reading-a-trace.es.md"])
def test_theory_10_says_how_busy_the_machine_was_and_how_long_backward_took(page: str) -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    text = " ".join((ROOT / "docs/theory" / page).read_text("utf-8").split())
    computed = record["ranks"][0]["compute"]
    forward, backward = (
        sum(end - start for start, end, phase in computed if phase == wanted)
        for wanted in ("forward", "backward")
    )
    numbers = [
        f"{record['provenance']['load-before']}",
        f"{forward / 1000:.1f} ms",
        f"{backward / 1000:.1f} ms",
        f"{backward / forward:.2f}",
    ]
    assert [number for number in numbers if number not in text] == [], "the trace is another"


def test_ranks_are_joined_as_train_joins_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {}

    def join(**options: Any) -> World:
        settings.update(options)
        raise ValueError("that is all")

    monkeypatch.setattr(World, "join", join)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    arguments = ["--tp=2", "--cpu", "--check", "--wide-sums", "--share-gpus"]
    monkeypatch.setattr("sys.argv", ["traced.py", "folder", *arguments])
    assert script(TRAIN.with_name("traced.py")).main() == 2
    assert settings == {"backend": "gloo", "check": True, "wide_sums": True, "share_gpus": True}
    assert "that is all" in capsys.readouterr().err


def test_what_train_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = script(TRAIN.with_name("traced.py"))

    def trace(*_: object) -> None:
        raise script(TRAIN).Refused("missing.idx cannot be read")

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("sys.argv", ["traced.py", "folder", "--data=missing"])
    monkeypatch.setattr(World, "join", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(lab, "trace", trace)
    assert lab.main() == 2
    assert capsys.readouterr().err == "train.py: error: missing.idx cannot be read\n"


@pytest.mark.ci
def test_a_learner_records_a_step_of_two_ranks(tmp_path: Path) -> None:
    lab = ROOT / "experiments/35-three-d/traced.py"
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    python_path = os.pathsep.join([str(ROOT / "tools"), str(lab.parent)])
    sizes = ["--tp", "2", "--cpu", "--steps", "1", "--layers", "1", "--sequence", "16"]
    subprocess.run(
        [*ranks, str(lab), str(tmp_path), *sizes],
        env=os.environ | {"PYTHONPATH": python_path}, check=True, capture_output=True,
        timeout=LIMIT,
    )  # fmt: skip
    for rank in read_step(tmp_path):
        assert [what for *_, what in rank["collectives"]].count("all_reduce") == 7
        assert {what for *_, what in rank["compute"]} == {"forward", "backward", "update"}
