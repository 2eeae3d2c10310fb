"""A recorded step is condensed correctly, and the data hold what theory 10 says of them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pages.blocks import PageError
from pages.programs import TRAIN, script
from pages.runs.trace import RECORD, SMALLEST_GAP, Span, read_step, record, sum_operators
from shardlab.comm import World
from sitelab.figures.trace import overlap
from tests.docs.page import ROOT
from tests.limits import LIMIT


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


def test_operators_are_summed_by_phase_and_those_within_another_count_once(tmp_path: Path) -> None:
    trace_events = [
        make_event("aten::linear", 1000, 100),
        make_event("aten::addmm", 1010, 80),
        make_event("aten::mm", 1200, 50),
        make_event("aten::mm", 1210, 20, thread=7),
        make_event("autograd::engine::evaluate_function: x", 1600, 200),
        make_event("aten::mm", 1610, 180),
        make_event("Optimizer.step#AdamW.step", 1900, 100),
        make_event("aten::add_", 1910, 20),
    ]
    assert sum_operators(trace_events) == {
        "forward": {"products": 2, "products-us": 130, "operators-us": 150},
        "backward": {"products": 1, "products-us": 180, "operators-us": 180},
        "update": {"products": 0, "products-us": 0, "operators-us": 20},
    }


def test_a_record_has_the_load_that_the_trace_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_events = [
        make_event("aten::mm", 1000, 100),
        make_event("autograd::engine::evaluate_function: x", 1600, 200),
        make_event("Optimizer.step#AdamW.step", 1900, 100),
    ]
    for folder, load in (("narrow", 0.5), ("wide", 0.75)):
        (tmp_path / folder).mkdir()
        trace = {"traceEvents": trace_events, "load-before": load}
        (tmp_path / folder / "rank-0.json").write_text(json.dumps(trace))
    monkeypatch.setattr("pages.runs.trace.RECORD", tmp_path / "record.json")
    record(str(tmp_path / "narrow"), "first", str(tmp_path / "wide"), "second")
    written = json.loads((tmp_path / "record.json").read_text("utf-8"))
    assert (written["command"], written["provenance"]["load-before"]) == ("first", 0.5)
    assert (written["wide"]["command"], written["wide"]["load-before"]) == ("second", 0.75)
    with pytest.raises(PageError, match=r"absent has no rank-0\.json"):
        record(str(tmp_path / "absent"), "first", str(tmp_path / "wide"), "second")


def test_theory_10_counts_what_was_recorded() -> None:
    ranks = json.loads(RECORD.read_text("utf-8"))["ranks"]
    for rank in ranks:
        names = [what for *_, what in rank["collectives"]]
        assert names == ["all_reduce"] * 9 + ["all_gather"] + ["all_reduce"] * 10
        assert overlap(rank["compute"], rank["collectives"]) == 0  # plain: nothing is hidden
    durations = [b - a for a, b, _ in ranks[0]["collectives"]]
    assert sum(length < 400 for length in durations) > len(durations) / 2  # µs, as the bench's


@pytest.mark.parametrize("page", ["10-reading-a-trace.md", "10-reading-a-trace.es.md"])
def test_theory_10_has_the_durations_that_were_recorded(page: str) -> None:
    step = json.loads(RECORD.read_text("utf-8"))
    text = " ".join((ROOT / "docs/theory" / page).read_text("utf-8").split())
    sums = [step["sums"][0], step["wide"]["sums"][0]]
    numbers = [
        str(step["provenance"]["load-before"]),
        str(step["wide"]["load-before"]),
        f"{SMALLEST_GAP} µs",
        *_find_waits(*(rank["collectives"] for rank in step["ranks"])),
        *_compare_phases(step["ranks"][0], sums[0]),
        *itertools.chain.from_iterable(map(_make_rows, sums)),
    ]
    assert [number for number in numbers if number not in text] == [], "the trace is another"


def _find_waits(collectives: list[Span], other_collectives: list[Span]) -> list[str]:
    """Return the fourth collective, which waits for the other rank, and the longest, which doesn't.

    The other rank asks later for the fourth, and both end at once; the longest begins on both.
    """
    (start, end, _), (other_start, other_end, _) = collectives[3], other_collectives[3]
    assert abs(end - other_end) < 0.03 * (other_start - start)
    waits = [end - start, other_end - other_start, other_start - start]
    longest = max(range(20), key=lambda n: collectives[n][1] - collectives[n][0])
    assert abs(collectives[longest][0] - other_collectives[longest][0]) < 50
    late = collectives[longest][1] - other_collectives[longest][1]
    return [*(f"{wait / 1000:.2f} ms" for wait in waits), f"{late / 1000:.1f} ms"]


def _compare_phases(rank: dict[str, list[Span]], sums: dict[str, dict[str, float]]) -> list[str]:
    """Return the gaps, and what the page says of forward beside backward.

    The operators of the picture contain the gaps that it closes; those of the sums don't.
    """
    end = max(end for spans in rank.values() for _, end, _ in spans)
    drawn = {kind: sum(b - a for a, b, _ in spans) for kind, spans in rank.items()}
    closed = drawn["compute"] - sum(phase["operators-us"] for phase in sums.values())
    durations = [end - sum(drawn.values()), end, closed]
    spans = [[s for s in rank["compute"] if s[2] == phase] for phase in ("forward", "backward")]
    lengths = [phase_spans[-1][1] - phase_spans[0][0] for phase_spans in spans]
    computing = [sum(b - a for a, b, _ in phase_spans) for phase_spans in spans]
    phases = [sums["forward"], sums["backward"]]
    others = [phase["operators-us"] - phase["products-us"] for phase in phases]
    return [
        *(f"{us / 1000:.1f} ms" for us in [*durations, *lengths, *computing, *others]),
        *(f"{backward / forward:.2f}" for forward, backward in (lengths, computing)),
        *(f"{phase['products-us'] / phase['products'] / 1000:.2f} ms" for phase in phases),
    ]


def _make_rows(sums: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the ends of the two rows of a model; a count's preposition is left out."""
    forward, backward = sums["forward"], sums["backward"]
    for kind in ("products-us", "operators-us"):
        ratio = backward[kind] / forward[kind]
        yield f"{forward[kind] / 1000:.1f} ms |"
        yield f"{backward[kind] / 1000:.1f} ms | {ratio:.2f} |"
    for phase in (forward, backward):
        yield f"| {phase['products']} "


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
    load = json.loads((tmp_path / "rank-0.json").read_text("utf-8"))["load-before"]
    assert isinstance(load, float)
    for rank in read_step(tmp_path):
        assert [what for *_, what in rank["collectives"]].count("all_reduce") == 7
        assert {what for *_, what in rank["compute"]} == {"forward", "backward", "update"}
