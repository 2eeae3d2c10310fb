"""`compare`: two runs of the same code agree, and an operation slowed by a fifth is named."""

import random
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import pytest

from costlab.judge.compare import compare, show
from costlab.record.names import Name, call, family_of
from costlab.record.result import Load, Metric, Result, Section
from costlab.sections.collectives.operations import OPERATIONS

DATA = Path(__file__).parents[1] / "data"
Slow = Callable[[Name], float]


def make_run(seed: int, slow: Slow = lambda _: 1.0, *, noise: float = 0.10) -> Result:
    """Return a simulated run: a curve for each link and operation, with a machine's noise."""
    chance = random.Random(seed)
    drift = chance.uniform(0.95, 1.05)
    metrics = []
    for link in ("gloo", "shared-memory"):
        for operation in OPERATIONS:
            for power in range(10, 25):
                name = call(link, operation, 2, 1 << power, "blocking")
                seconds = (1e-4 + name.size / 1e9) * slow(name) * drift
                launches = sorted(seconds * chance.lognormvariate(0, noise) for _ in range(5))
                low, _, value, _, high = launches
                metrics.append(Metric(id=name.id, value=value, unit="s", low=low, high=high))
    counted = Metric(id="count.block.forward.all_reduce", value=2, unit="count", how="counted")
    return Result(
        provenance={"processor": "some", "cores": 2},
        sections={
            "collectives": Section(status="complete", metrics=metrics),
            "counts": Section(status="complete", metrics=[counted]),
        },
    )


def test_two_runs_of_the_same_code_are_the_same() -> None:
    for seed in range(20):
        compared = compare(make_run(seed), make_run(1000 + seed))
        assert [f.name for f in compared.families if f.significant] == [], seed
        assert not compared.differs, seed
        assert len(compared.families) == 12


def test_an_operation_slowed_down_by_a_fifth_is_named_and_no_other() -> None:
    def slow(name: Name) -> float:
        return 1.2 if (name.link, name.operation) == ("gloo", "all_gather") else 1.0

    for seed in range(20):
        compared = compare(make_run(seed), make_run(1000 + seed, slow))
        significant = [family for family in compared.families if family.significant]
        assert [f.name for f in significant] == ["collective.gloo.all_gather.n2.*.blocking"], seed
        assert 1.12 < significant[0].change / compared.whole < 1.30, seed
        assert compared.differs


def test_a_machine_slowed_down_altogether_is_one_finding() -> None:
    compared = compare(make_run(1), make_run(2, lambda _: 1.4))
    assert compared.whole_beyond
    assert compared.differs
    assert compared.whole > 1.15
    assert not any(family.significant for family in compared.families)


def test_on_a_slower_machine_a_familys_words_and_a_bandwidth_are_beside_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where all takes 1.4 times, what takes as long is faster, and bytes a second are fewer."""
    stays = "collective.gloo.all_gather.n2.*.blocking"
    first, second = (
        make_run(1),
        make_run(1, lambda first: 1.0 if family_of(first.id) == stays else 1.4),
    )
    for result, speed in ((first, 1.4), (second, 1.0)):
        bandwidth = Metric(id="fit.gloo.all_reduce.n2.bandwidth", value=speed, unit="B/s")
        result.sections["fit"] = Section(status="complete", metrics=[bandwidth])
    compared = compare(first, second)
    assert [family.name for family in compared.families if family.significant] == [stays]
    show(compared, "one", "other")
    assert "29 % faster than the rest" in capsys.readouterr().out


def test_what_has_nothing_in_common_is_not_the_same() -> None:
    first, second = make_run(1), make_run(1)
    first.sections = {"counts": first.sections["counts"]}
    del second.sections["counts"]
    with pytest.raises(click.UsageError, match="no metric in common"):
        compare(first, second)


def test_a_section_that_broke_off_is_told() -> None:
    first, second = make_run(1), make_run(1)
    second.sections["counts"] = Section(
        note="interrupted", metrics=first.sections["counts"].metrics
    )
    assert compare(first, second).machines == ["the second, counts: broke off: interrupted"]


def test_what_is_counted_has_no_noise() -> None:
    first, second = make_run(1), make_run(1)
    metric = Metric(id="count.block.forward.all_reduce", value=3, unit="count", how="counted")
    second.sections["counts"].metrics = [metric]
    compared = compare(first, second)
    assert compared.counts == ["count.block.forward.all_reduce: 2, 3"]
    assert compared.differs


def test_what_only_one_has_and_another_machine_are_said() -> None:
    first, second = make_run(1), make_run(1)
    second.provenance = {"processor": "other", "cores": 2}
    del second.sections["counts"]
    compared = compare(first, second)
    assert compared.machines == ["another processor: some, other"]
    assert compared.missing == {"count": 1}
    assert not compared.differs


def test_a_run_that_was_cut_short_is_told() -> None:
    first, second = make_run(1), make_run(1)
    part = second.sections["counts"]
    part.status, part.load = "cut", Load(rounds=3, missing_rounds=9, missing_launches=2)
    (line,) = compare(first, second).machines
    assert line.startswith("the second, counts: ")
    assert "3 of 12 rounds; launches not measured when the time was up: 2" in line


def test_a_run_on_a_busy_machine_is_told() -> None:
    first, second = make_run(1), make_run(1)
    second.provenance = {**first.provenance, "load-before": 7.5}
    assert compare(first, second).machines == [
        "the second began on a busy machine: load 7.5 on 2 cores"
    ]


def load_whole_run(name: str, slow: str = "") -> Result:
    """Return one of two whole runs of the quick profile on a two-core machine."""
    runs = msgspec.json.decode((DATA / "two-whole-runs.json").read_bytes())
    metrics = []
    for id_, (unit, *values) in runs[name].items():
        factor = 1.2 if family_of(id_) == slow else 1.0
        value, low, high = (v if v is None else v * factor for v in values)
        if low is not None:  # of the time when a value might lie outside its spread
            low, high = min(low, value), max(high, value)
        metrics.append(Metric(id=id_, value=value, unit=unit, low=low, high=high))
    return Result(sections={"all": Section(status="complete", metrics=metrics)})


@pytest.mark.parametrize(
    ("first", "second"),
    [("first", "second"), pytest.param("second", "first", marks=pytest.mark.ci)],
)
def test_two_whole_runs_agree_and_a_fifth_is_called_out_where_noise_allows(
    first: str, second: str
) -> None:
    compared = compare(load_whole_run(first), load_whole_run(second))
    assert not compared.differs
    times = [family.name for family in compared.families if family.unit == "s"]
    named = {
        name
        for name in times
        if [
            f.name
            for f in compare(load_whole_run(first), load_whole_run(second, name)).families
            if f.significant
        ]
        == [name]
    }
    assert len(times) == 43
    assert len(named) >= 28  # the others vary by as much from run to run


def test_a_timeline_is_a_picture_and_no_metric() -> None:
    def drawn(value: float) -> Result:
        metric = Metric(id="timeline.000", value=value, unit="s")
        return Result(sections={"fsdp": Section(metrics=[metric])})

    assert compare(drawn(1.0), drawn(3.0)).families == []


def test_a_metric_alone_is_judged_by_its_spread() -> None:
    def alone(low: float, value: float, high: float) -> Result:
        metric = Metric(id="tp.ratio.torch", value=value, unit="ratio", low=low, high=high)
        return Result(sections={"tp": Section(metrics=[metric])})

    assert not compare(alone(0.9, 1.0, 1.3), alone(1.1, 1.2, 1.3)).differs
    assert compare(alone(0.98, 1.0, 1.05), alone(1.15, 1.2, 1.3)).differs
