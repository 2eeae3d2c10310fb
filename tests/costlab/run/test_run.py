"""A run keeps its metrics, with samples, and an older partial result until it is replaced."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costlab.publish import summary
from costlab.record import options, samples
from costlab.record.names import Name
from costlab.record.options import Settings
from costlab.record.result import Load, Metric, Result, ResultError, Section, load, save
from costlab.run import launch, measuring
from costlab.run.progress import Plain
from costlab.run.run import Run
from costlab.sections import plan
from costlab.sections.metrics import timed
from costlab.sections.plan import Plan

Item = Metric | str
MIXED = gzip.compress(b"{}")[:10] + bytes(20)  # its first bytes are a gzip file's


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a section of two launches with given items; returns the result and its samples."""
    out = tmp_path / "one.json"

    def run(*launches: Callable[[], Iterator[Item]], before: Result | None = None) -> Result:
        remaining = iter(launches)
        module = Plan(lambda *_: iter(()), launches=lambda _: 2)
        monkeypatch.setattr(plan, "load", lambda _: module)
        monkeypatch.setattr(launch, "run", lambda *_, **__: next(remaining)())
        run = Run(Settings(), out, Plain(io.StringIO()), {}, before=before)
        try:
            run.measure(["tp"])
        except KeyboardInterrupt:
            assert run.faults
        return load(out).with_series(samples.load(out))

    return run


def step(name: str, *seconds: float) -> Metric:
    return timed(Name("timeline", name), list(seconds))


def complete_launch(*items: Item) -> Callable[[], Iterator[Item]]:
    return lambda: (item for item in items)


def broken_launch(*items: Item) -> Callable[[], Iterator[Item]]:
    def measure() -> Iterator[Item]:
        yield from items
        raise KeyboardInterrupt

    return measure


def test_what_was_timed_is_kept_launch_by_launch(tmp_path: Path, measured: Any) -> None:
    result = measured(complete_launch(step("a", 1, 2, 3)), complete_launch(step("a", 4.123456, 5)))
    assert result.metrics()["timeline.a"].series == [[1, 2, 3], [4.1235, 5]]
    with gzip.open(tmp_path / "one.samples.json.gz") as file:  # as the module's docstring says
        assert json.load(file)["samples"] == {"timeline.a": [[1, 2, 3], [4.1235, 5]]}
    assert b"series" not in (tmp_path / "one.json").read_bytes()


def test_two_interruptions_lose_nothing(measured: Any) -> None:
    """A finished launch is measured once; a broken one counts until another one is in its place."""
    first = measured(
        complete_launch(step("a", 1, 1), step("b", 2, 2)), broken_launch(step("a", 3, 3, 3))
    )
    assert first.sections["tp"].status == "partial"
    assert first.metrics()["timeline.a"].series == [[1, 1], [3, 3, 3]]
    second = measured(broken_launch(step("b", 4)), before=first)
    assert second.metrics()["timeline.a"] == first.metrics()["timeline.a"]
    assert second.metrics()["timeline.b"].series == [[2, 2], [4]]
    third = measured(complete_launch(step("a", 7), step("b", 6)), before=second)
    assert third.sections["tp"].status == "complete"
    assert third.metrics()["timeline.a"].series == [[1, 1], [7]]
    assert third.metrics()["timeline.b"].series == [[2, 2], [6]]
    assert third.metrics()["timeline.b"].detail == {"launches": 2}


def test_what_an_unfinished_first_launch_left_stays_until_it_is_equalled(measured: Any) -> None:
    """What the first left stays until it is equalled, round for round."""
    first = measured(broken_launch(step("a", 1, 1), step("b", 2, 2)))
    second = measured(broken_launch(step("b", 4)), before=first)
    assert second.metrics() == first.metrics()
    third = measured(broken_launch(step("b", 5, 5, 5)), before=second)
    assert third.metrics()["timeline.a"] == first.metrics()["timeline.a"]
    assert third.metrics()["timeline.b"].series == [[5, 5, 5]]
    assert third.sections["tp"].status == "partial"


def test_a_whole_section_holds_nothing_of_an_older_half(measured: Any) -> None:
    first = measured(broken_launch(step("a", 1, 1, 1), step("gone", 2)))
    second = measured(complete_launch(step("a", 7)), complete_launch(step("a", 9)), before=first)
    assert {name: metric.value for name, metric in second.metrics().items()} == {"timeline.a": 8}
    assert second.sections["tp"].status == "complete"


def test_what_else_ran_counts_each_finished_launch_once_and_stands_above_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that goes on forgets the rounds of the launch that broke off, as it does its times."""
    rounds = iter([4, 5, 6])

    def measure_with_load(
        *_: object, on_progress: Callable[[Load], None], **__: object
    ) -> Iterator[Metric]:
        count = next(rounds)
        yield step("a", 1, 2)
        on_progress(Load(rounds=count, dropped=1, core_seconds=2 * count, worst_share=0.3))
        if count == 5:
            raise KeyboardInterrupt

    module = Plan(lambda *_: iter(()), launches=lambda _: 2)
    monkeypatch.setattr(plan, "load", lambda _: module)
    monkeypatch.setattr(launch, "run", measure_with_load)
    path = tmp_path / "one.json"
    with pytest.raises(KeyboardInterrupt):
        Run(Settings(), path, Plain(io.StringIO()), {}).measure(["tp"])
    first = load(path)
    broken = first.sections["tp"].load
    assert broken == Load(rounds=9, dropped=2, core_seconds=18, worst_share=0.3)
    Run(Settings(), path, Plain(io.StringIO()), {}, before=first).measure(["tp"])
    whole = load(path)
    assert whole.sections["tp"].load == Load(rounds=10, dropped=2, core_seconds=20, worst_share=0.3)
    summary.show(whole, whole=False)
    shown = capsys.readouterr().out
    assert 0 < shown.find("tp: 2 of 10 rounds dropped") < shown.find("timeline.a")


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def timed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Measure sections whose launches take given seconds; each has four rounds, or is cut short."""
    path, clock = tmp_path / "one.json", Clock()
    monkeypatch.setattr(options.time, "perf_counter", clock.perf_counter)

    def run(
        launches: dict[str, list[float]], *, minutes: float, before: Result | None = None,
        show: io.StringIO | None = None,
    ) -> Result:  # fmt: skip
        shares: list[tuple[str, float]] = []

        def measure(
            what: str, settings: Settings, *, on_progress: Callable[[Load], None], **__: object
        ) -> Iterator[Metric]:
            shares.append((what, round(settings.seconds)))
            wanted = launches[what].pop(0)
            clock.now += min(wanted, settings.seconds) if settings.seconds else wanted
            yield step(what, *range(1, 3 + settings.launch))
            missing = 2 if settings.seconds and wanted > settings.seconds else 0
            on_progress(Load(rounds=4 - missing, missing_rounds=missing))

        def plan_of(name: str, count: int) -> Plan:
            return Plan(name, launches=lambda _: count)  # type: ignore[arg-type]

        plans = {name: plan_of(name, len(seconds)) for name, seconds in launches.items()}
        monkeypatch.setattr(plan, "load", plans.__getitem__)
        monkeypatch.setattr(launch, "run", measure)
        settings = Settings(minutes=minutes)
        Run(settings, path, Plain(show or io.StringIO()), {}, before=before).measure(list(plans))
        return load(path), shares  # type: ignore[return-value]

    return run


def test_a_run_shares_its_time_out_and_a_part_keeps_what_it_has(timed_run: Any) -> None:
    """By what each takes on a quiet machine; what a part leaves, the next ones have."""
    wanted = {"collectives": [1.0] * 5, "tp": [200.0] * 3, "fsdp": [45.0], "counts": [7.0]}
    result, shares = timed_run(wanted, minutes=4)
    sections = result.sections
    # 240 s × 67/240, in five launches, each of which leaves the others what it does not take.
    assert [seconds for name, seconds in shares if name == "collectives"] == [13, 16, 22, 32, 63]
    assert [seconds for name, seconds in shares if name == "tp"] == [55, 55, 55]
    assert [seconds for name, seconds in shares if name == "fsdp"] == [61]
    assert {name: part.status for name, part in sections.items()} == {
        "collectives": "complete", "tp": "cut", "fsdp": "complete", "counts": "complete",
    }  # fmt: skip
    assert sections["tp"].load == Load(rounds=6, missing_rounds=6)
    assert sections["tp"].metrics  # what was measured stays
    assert result.settings["minutes"] == 4


def test_when_a_parts_time_is_up_no_other_launch_follows(timed_run: Any) -> None:
    result, shares = timed_run({"fsdp": [7.0, 7.0, 7.0]}, minutes=0.1)
    assert len(shares) == 3  # 6 s are shared out over three launches
    result, shares = timed_run({"fsdp": [0.5] * 3, "tp": [7.0] * 3}, minutes=0.05)
    assert result.sections["fsdp"].load == Load(rounds=8, missing_launches=1)
    assert result.sections["fsdp"].status == "cut"
    result, shares = timed_run({"fsdp": [7.0] * 3, "tp": [7.0] * 3}, minutes=0.01)
    assert [name for name, _ in shares] == ["fsdp", "tp"]  # at least one, if no time is left


def test_a_run_that_was_cut_short_goes_on_where_its_time_was_up(timed_run: Any) -> None:
    cut, _ = timed_run({"fsdp": [0.5, 7.0, 7.0]}, minutes=0.05)
    assert cut.sections["fsdp"].load == Load(rounds=4 + 2 + 2, missing_rounds=4)
    whole, shares = timed_run({"fsdp": [7.0] * 3}, minutes=9, before=cut)
    assert len(shares) == 2  # the first launch had all its rounds
    assert whole.sections["fsdp"].status == "complete"
    assert whole.sections["fsdp"].load == Load(rounds=12)
    again, shares = timed_run({"fsdp": [7.0] * 3}, minutes=9, before=whole)
    assert shares == []
    assert again.sections["fsdp"].metrics == whole.sections["fsdp"].metrics


def test_without_a_budget_nothing_is_cut_short(timed_run: Any) -> None:
    lines = io.StringIO()
    result, shares = timed_run({"tp": [900.0] * 3}, minutes=0, show=lines)
    assert shares == [("tp", 0)] * 3
    assert result.sections["tp"].status == "complete"
    assert "ends" not in lines.getvalue()


def test_a_run_estimates_its_end_and_says_what_was_cut_short(timed_run: Any) -> None:
    lines = io.StringIO()
    timed_run({"tp": [900.0], "counts": [1.0]}, minutes=1, show=lines)
    first, tp, second, _ = lines.getvalue().splitlines()
    assert re.fullmatch(r"tp … ends about \d\d:\d\d", first)
    assert tp.endswith("cut short when the time was up: 2 of 4 rounds")
    assert second.startswith("counts … ends about")


@pytest.mark.parametrize(
    ("settings", "usual", "pace", "words"),
    [
        (Settings(minutes=10), 120, 1.0, "ends about 10:02"),
        (Settings(minutes=10), 120, 4.0, "ends about 10:08"),
        (Settings(minutes=10), 120, 9.0, "ends about 10:10"),  # the budget bounds it
        (Settings(minutes=10, sizes=(1024,)), 120, 1.0, "ends by 10:10"),  # of unknown length
        (Settings(minutes=10), 0, 1.0, ""),
        (Settings(), 120, 1.0, ""),
    ],
)
def test_the_estimate_knows_the_pace_and_the_budget(
    settings: Settings, usual: float, pace: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options.time, "perf_counter", lambda: 5.0)
    at_ten = SimpleNamespace(now=lambda: datetime(2026, 11, 26, 10, 0))
    monkeypatch.setattr("costlab.run.run.datetime", at_ten)
    run = Run(settings, None, Plain(io.StringIO()), {}, pace=pace)
    assert run.estimate_end(usual) == words


def test_what_is_derived_anew_stands_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    derives = Plan(derive=lambda _: [Metric(id="fit.a", value=2, unit="s")])
    monkeypatch.setattr(plan, "load", lambda _: derives)
    section = Section(status="complete", metrics=[Metric(id="fit.a", value=1, unit="s")])
    run = Run(
        Settings(), tmp_path / "one.json", Plain(io.StringIO()), {},
        before=Result(sections={"fit": section}),
    )  # fmt: skip
    run.measure(["fit"])
    assert [metric.value for metric in load(tmp_path / "one.json").sections["fit"].metrics] == [2]


def test_each_going_on_is_told_and_whether_the_code_had_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A result of three commits names three."""
    begun: dict[str, object] = {"date": "1", "commit": "a", "clean": True}
    result = Result(provenance=begun)  # type: ignore[arg-type]
    for now in (
        {"date": "2", "commit": "b", "clean": True},
        {"date": "3", "commit": "c", "clean": False},
    ):
        monkeypatch.setattr(measuring, "provenance", lambda *_, now=now, **__: now)
        result.provenance = measuring._facts(result, Settings(), [], None)
    assert result.provenance == begun | {"resumed": "2, commit b; 3, commit c, with changes"}


def test_no_samples_are_no_fault_and_damaged_ones_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    result = Result(sections={"tp": Section(metrics=[step("a", 1)])})
    save(result, path)
    assert samples.load(path) == {}
    samples.save(result, path)
    samples_file = samples.samples_path(path)
    assert samples_file.name == "one.samples.json.gz"
    for damaged in (b"", b"no gzip", samples_file.read_bytes()[:-9], MIXED, gzip.compress(b"[]")):
        samples_file.write_bytes(damaged)
        with pytest.raises(ResultError, match=r"one\.samples\.json\.gz holds no samples") as fault:
            samples.load(path)
        assert "\n" not in str(fault.value)


def test_a_full_disk_leaves_the_older_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.json"
    samples.save(Result(sections={"tp": Section(metrics=[step("a", 1)])}), path)

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultError, match="No space left on device"):
        samples.save(Result(sections={"tp": Section(metrics=[step("a", 2)])}), path)
    assert samples.load(path) == {"timeline.a": [[1.0]]}
    assert [path.name for path in tmp_path.iterdir()] == ["one.samples.json.gz"]
