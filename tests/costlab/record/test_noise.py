"""A busy machine is noticed: disturbed rounds are dropped, counted and reported."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from costlab.implementations import rounds
from costlab.implementations.rounds import Rounds
from costlab.record import noise
from costlab.record.noise import NoiseMonitor, Reading, describe, of_hosts
from costlab.record.result import Load
from shardlab.comm import World
from tests.shardlab.pool import on_ranks

PLAN = Rounds(seconds=0, least=4, most=4, warmup=0)


class Accounts:
    """A simulated machine of two cores: each round takes a second, with given foreign shares."""

    def __init__(self, foreign_seconds: list[float]) -> None:
        self._others = iter(foreign_seconds)
        self._at, self._worked, self._begun = 0.0, 0.0, False

    def reading(self) -> Reading:
        self._begun = not self._begun
        if not self._begun:  # both ranks work 0.7 s of a second
            self._at, self._worked = self._at + 1.0, self._worked + 1.4 + next(self._others)
        return Reading(self._at, self._worked, 0.7 * self._at, math.nan)


def measure_watched(
    world: World, foreign_seconds: list[float], until: tuple[float, ...] = (math.inf, math.inf)
) -> tuple[list[float], list[Any]]:
    """Measure a step whose seconds are the numbers of its rounds."""
    seconds = iter(float(number) for number in range(1, 100))
    with (
        patch.object(noise, "reading", Accounts(foreign_seconds).reading),
        patch.object(noise.os, "sched_getaffinity", lambda _: {0, 1}),
        patch.object(rounds, "seconds", lambda *_: next(seconds)),
    ):
        under_way = rounds.measuring(
            world, {"a": lambda: None}, PLAN, Random(1), until=until[world.rank]
        )
        lines: list[Any] = []
        while True:
            try:
                lines.append(next(under_way))
            except StopIteration as end:
                return end.value["a"], lines


def test_a_spoiled_round_is_dropped_and_measured_again(pool: Any) -> None:
    for times, lines in pool(2).run(measure_watched, [0.02, 0.6, 0.0, 0.2, 0.05, 0.1]):
        assert times == [1, 3, 5, 6]
        assert lines[-2] == "round 4 of 4, 2 disturbed"
        assert lines[-1] == Load(
            rounds=6, dropped=2, core_seconds=12, foreign=0.97, worst_share=0.3
        )
        assert (
            describe(lines[-1]).en
            == "2 of 6 rounds dropped: something else used up to 30 % of the cores"
        )


def test_where_too_few_are_clean_all_count_and_the_run_says_not_to_quote_them(pool: Any) -> None:
    for times, lines in pool(2).run(measure_watched, [0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9]):
        assert times == [1, 2, 3, 4, 5, 6, 7, 8]  # as many again as were wanted, no more
        assert lines[-1].spoiled == 7
        assert describe(lines[-1]).en.startswith(
            "The machine was busy: don't quote this. In 7 of 8 rounds"
        )


def test_nothing_is_dropped_where_nothing_else_runs(pool: Any) -> None:
    for times, lines in pool(2).run(measure_watched, [0.0, 0.04, -0.03, 0.06]):
        assert times == [1, 2, 3, 4]
        assert describe(lines[-1]).en.startswith("4 rounds, none dropped: something else used 1.")


@pytest.mark.parametrize(
    ("until", "got"),
    [((2.5, 2.5), 3), ((math.inf, 2.5), 3), ((0.0, 0.0), 2), ((4.0, 4.0), 4), ((9.0, 9.0), 4)],
)
def test_a_part_whose_time_is_up_keeps_its_rounds_and_says_how_many_it_got(
    pool: Any, until: tuple[float, float], got: int
) -> None:
    """At least two; and all ranks end together, though only one saw that the time was up."""
    for times, lines in pool(2).run(measure_watched, [0.0] * 4, until):
        assert times == [1, 2, 3, 4][:got]
        assert lines[-1] == Load(
            rounds=got, core_seconds=2 * got, foreign=0, missing_rounds=4 - got
        )
        assert lines[-1].cut_short == (got < 4)
        words = f"cut short when the time was up: {got} of 4 rounds"
        assert (words in describe(lines[-1]).en) == (got < 4)


@pytest.mark.parametrize(
    ("foreign", "until", "kept", "load"),
    [  # two clean rounds are enough where the time is up; with one, all count and none is to quote
        ([0.9, 0.0, 0.0], 2.5, [2, 3], {"dropped": 1, "missing_rounds": 2}),
        ([0.9, 0.0], 1.5, [1, 2], {"spoiled": 1, "missing_rounds": 2}),
        ([0.9] * 5, 4.5, [1, 2, 3, 4, 5], {"spoiled": 5}),
    ],
)
def test_a_busy_part_whose_time_is_up_keeps_its_clean_rounds(
    pool: Any, foreign: list[float], until: float, kept: list[int], load: dict[str, int]
) -> None:
    for times, lines in pool(2).run(measure_watched, foreign, (until, until)):
        assert times == kept
        expected = {"dropped": 0, "spoiled": 0, "missing_rounds": 0} | load
        assert {name: getattr(lines[-1], name) for name in expected} == expected


def test_a_system_that_does_not_say_is_measured_and_said_so(pool: Any) -> None:
    for times, lines in pool(2).run(measure_watched, [math.nan] * 4):
        assert times == [1, 2, 3, 4]
        assert describe(lines[-1]).en.startswith("4 of 4 rounds unwatched: this system doesn't say")


def measure_foreign_load(world: World, spinner: str) -> list[Load]:
    """Return the load while this rank rests, without and with another busy program."""
    loads = []
    for program in ("pass", spinner):
        watching = NoiseMonitor(world)
        with subprocess.Popen([sys.executable, "-c", program]) as foreign_program:
            if program == "pass":
                foreign_program.wait()
            with watching.round():
                time.sleep(0.5)
            foreign_program.kill()
        loads.append(watching.load(1))
    return loads


def test_another_program_is_seen_in_the_systems_own_accounts(pool: Any) -> None:
    """Whatever else runs beside the tests: a program that spins adds what it spins."""
    (ours, _) = pool(2).run(measure_foreign_load, "while True: pass")
    assert not ours[1].unwatched
    assert ours[1].spoiled == 1
    assert ours[1].foreign > 0.15


@on_ranks(2)
def test_our_own_work_is_not_somebody_elses(world: World) -> None:
    """Return the seconds that the cores worked, and that this process worked, while it is busy."""
    before = noise.reading()
    while time.process_time() < before.own_process + 0.25:
        pass
    after = noise.reading()
    worked, own_seconds = after.worked - before.worked, after.own_process - before.own_process
    assert worked >= own_seconds - noise.RESOLUTION
    assert own_seconds > 0.2


def test_accounts_are_summed_on_each_host_and_the_busiest_host_counts() -> None:
    quiet = [[1.0, 2, 1.0, 1.50, 0.7, 0.1], [1.0, 2, 1.0, 1.52, 0.8, 0.2]]
    loaded = [[2.0, 4, 1.0, 3.0, 0.9, math.nan]]
    assert of_hosts(quiet).foreign == pytest.approx(0.02)
    assert not of_hosts(quiet).spoiled
    assert of_hosts(quiet + loaded) == (
        4.0,
        pytest.approx(2.1),
        pytest.approx(math.nan, nan_ok=True),
    )


def test_only_our_cores_and_no_interrupts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 9 9 9 9\ncpu0 100 10 20 999 7 5 6 3 50 0\ncpu1 1 1 1 1 1 1 1 1\nintr 4\n")
    monkeypatch.setattr(noise, "_STAT", stat)
    monkeypatch.setattr(noise.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(noise.os, "sysconf", lambda _: 100)
    assert noise.reading().worked == pytest.approx(1.33)


def test_without_the_accounts_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_STAT", tmp_path / "none")
    monkeypatch.setattr(noise, "_PRESSURE", tmp_path / "none")
    read = noise.reading()
    assert math.isnan(read.worked)
    assert math.isnan(read.waited)
    assert read.own_process > 0


def test_what_uses_the_cores_before_a_run_is_named(tmp_path: Path) -> None:
    """A program that spins is found by its name and its share; this process is left out."""
    spinner = tmp_path / "spinner-of-a-test"
    spinner.symlink_to(sys.executable)
    with subprocess.Popen([str(spinner), "-S", "-E", "-c", "while True: pass"]) as program:
        time.sleep(0.1)  # until it is there, not as long as it may take
        others = noise.watch_others(0.6)
        program.kill()
    shares = dict(others.programs)
    assert shares["spinner-of-a-te"] > 0.02  # a name has fifteen letters
    assert others.share >= 0.02
    assert "spinner-of-a-te " in others.describe() or len(others.programs) > 4


def test_a_process_that_ends_or_has_a_strange_name_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in {
        "11": "11 (a) b\x1b[31m) R" + " 0" * 10 + " 150 50 0 0",
        "12": "",
        "13": "13 (cut) R 0 0",
        "self": "1 (self) R" + " 0" * 20,
    }.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "stat").write_text(text)
    (tmp_path / "14").mkdir()  # and no stat any more
    monkeypatch.setattr(noise, "_PROC", tmp_path)
    monkeypatch.setattr(noise.os, "sysconf", lambda _: 100)
    assert noise._processes() == {11: ("a) b?[31m", 2.0)}


def test_without_the_accounts_no_machine_is_called_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_STAT", tmp_path / "none")
    assert not noise.watch_others(0.01).busy


def test_what_is_said_says_it_in_both_languages() -> None:
    for load, word in (
        (Load(rounds=3, core_seconds=6.0), "ninguna"),
        (Load(rounds=3, dropped=1, core_seconds=6.0, worst_share=0.5), "descartadas"),
        (
            Load(rounds=3, spoiled=2, core_seconds=6.0, foreign=3.0, worst_share=0.8),
            "no cites esto",
        ),
        (Load(rounds=3, unwatched=3), "sin vigilar"),
        (Load(rounds=3, missing_rounds=2), "3 de 5 rondas"),
        (Load(rounds=3, missing_launches=4), "sin medir al acabarse el tiempo: 4"),
    ):
        assert word in describe(load).es
        assert "{" not in describe(load).es + describe(load).en


def test_loads_add_up_and_the_worst_stays_the_worst() -> None:
    first = Load(rounds=3, dropped=1, core_seconds=6.0, foreign=1.0, worst_share=0.5)
    assert first + Load(rounds=2, core_seconds=4.0, foreign=0.1) == Load(
        rounds=5, dropped=1, core_seconds=10.0, foreign=1.1, worst_share=0.5
    )
