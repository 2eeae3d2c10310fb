"""The kernels beside other libraries: from a case to a result, and the command that measures."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from costlab import cli
from costlab.implementations import rounds
from costlab.publish import kernels_page
from costlab.record import provenance
from costlab.record.options import Settings
from costlab.record.result import Result, Section, save
from costlab.record.words import Words
from costlab.run.progress import Plain
from costlab.run.run import Run
from costlab.sections import kernels
from costlab.sections.kernels import Case, Column
from shardlab.comm import World


@contextmanager
def idle(world: World, *, hidden: int) -> Iterator[dict[str, rounds.Step]]:
    yield {"a": lambda: float(hidden), "b": lambda: float(hidden)}


CASE = Case(
    name="idle", about="", build="tests.costlab.sections.test_kernels:idle", setting="hidden",
    row=Words("hidden", "hidden"), rows=(1, 2),
    columns=(Column("a", "a", "a"), Column("b", "b", "b")),
    rounds={"seconds": 0, "least": 2, "most": 2, "warmup": 0},
    rounds_of={"2": {"least": 1, "most": 1}},
)  # fmt: skip


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cases", lambda: {"idle": CASE})


@pytest.mark.ci
@pytest.mark.usefixtures("one_case")
def test_each_row_is_measured_in_three_launches_with_what_else_ran(tmp_path: Path) -> None:
    said = io.StringIO()
    show = Plain(said)
    show.step = lambda line: print(line, file=said)  # type: ignore[method-assign]
    run = Run(Settings(profile="full"), tmp_path / "one.json", show, {})
    run.measure([CASE.section])
    section = run.result.sections[CASE.section]
    assert section.status == "complete", section.note
    kept = {
        metric.id: [len(launch) for launch in metric.series]
        for metric in section.metrics
        if metric.name.what == "step"
    }
    assert list(kept) == [f"kernels.idle.{row}.step.{code}" for row in (1, 2) for code in "ab"]
    assert all(len(launches) == 3 for launches in kept.values())
    assert kept["kernels.idle.1.step.a"] == kept["kernels.idle.1.step.b"]
    assert section.load is not None
    measured = sum(kept["kernels.idle.1.step.a"]) + sum(kept["kernels.idle.2.step.a"])
    assert section.load.rounds - section.load.dropped == measured >= 9
    assert "launch 3 of 3: hidden 2 (2 of 2): round 1 of 1" in said.getvalue()


def test_a_case_goes_to_other_processes_and_its_slow_rows_have_rounds_of_their_own() -> None:
    assert pickle.loads(pickle.dumps(CASE.measure)).__self__ == CASE
    full, slow, quick = (
        CASE._rounds(1, quick=False), CASE._rounds(2, quick=False), CASE._rounds(2, quick=True)
    )  # fmt: skip
    assert (full.least, slow.least, quick.least) == (2, 1, 3)


def test_contestants_whose_losses_differ_are_not_compared() -> None:
    with pytest.raises(RuntimeError, match=r"^b .* a: loss 1\.1, not 1\.0"):
        rounds.agree({"a": 1.0, "c": None, "b": 1.1}, 1e-4)


@pytest.mark.parametrize("case", kernels.cases().values(), ids=lambda case: case.name)
def test_a_case_names_its_contestants_and_rows_alike(case: Case) -> None:
    contestants = [column.contestant for column in case.columns]
    names = {case.step(case.rows[0], column).id for column in case.columns}
    assert len(names) == len(contestants) == len(set(contestants))
    for goal in case.goals:
        assert {goal.contestant, goal.over} <= set(contestants)
        assert set(goal.rows) <= set(case.rows)
    assert set(case.rounds_of) <= set(map(str, case.rows))
    assert 1 <= case._rounds(case.rows[-1], quick=False).least <= 100


def test_the_cases_are_listed_in_the_order_of_the_page() -> None:
    outcome = CliRunner().invoke(cli.bench, ["kernels", "--list"])
    listed = [line.split()[0] for line in outcome.output.splitlines()]
    assert listed == list(kernels.cases())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nonsense", "--quick"], "no case 'nonsense'; there are tensor-parallel,"),
        ([], "commit first, or take --quick"),
        (["--resume", "other.json"], "other.json is no run of `tools/bench kernels`"),
    ],
)
def test_what_can_not_be_measured_is_refused(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_output", lambda *_: " M tools/shardlab/comm/axis.py")
    monkeypatch.chdir(tmp_path)
    save(Result(settings={"profile": "quick", "sections": ["tp"]}), tmp_path / "other.json")
    outcome = CliRunner().invoke(cli.bench, ["kernels", *words])
    assert outcome.exit_code == 2
    assert line in outcome.output


def test_torchruns_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    outcome = CliRunner().invoke(cli.bench, ["kernels", "--quick"])
    assert outcome.exit_code == 2
    assert "without torchrun" in outcome.output


@pytest.fixture
def publishing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let a run of one case find that it is all measured; return what was published."""
    published: list[Any] = []
    other = msgspec.structs.replace(CASE, name="other")
    monkeypatch.setattr(kernels, "cases", lambda: {"other": other, "idle": CASE})
    monkeypatch.setattr(provenance, "_output", lambda *_: "")
    monkeypatch.setattr(kernels_page, "publish", lambda result, case: published.append(case.name))
    monkeypatch.setattr(kernels_page, "render", lambda *_: "a table")
    monkeypatch.setattr(kernels_page, "missed", lambda *_: ["the goal is missed"])
    monkeypatch.setattr(Run, "measure", lambda *_, **__: None)
    return published


@pytest.mark.parametrize(
    ("profile", "status", "code", "count"),
    [("full", "complete", 1, 1), ("quick", "complete", 0, 0), ("full", "partial", 0, 0)],
)
def test_a_run_that_goes_on_measures_its_own_cases_and_publishes_a_full_one(
    profile: str,
    status: Any,
    code: int,
    count: int,
    publishing: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "one.json"
    facts = provenance.provenance(Settings(), [], ranks=None)
    settings = msgspec.to_builtins(Settings(profile=profile, sections=(CASE.section,)))
    sections = {CASE.section: Section(status=status)}
    save(Result(provenance=facts, settings=settings, sections=sections), file)
    assert cli.bench(["kernels", "--resume", str(file)], standalone_mode=False) == code
    shown = capsys.readouterr()
    assert publishing == ["idle"] * count
    assert ("a table" in shown.out) == (status == "complete")
    assert ("error: the goal is missed" in shown.err) == bool(count)
