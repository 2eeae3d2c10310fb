"""`compare`: two runs of the same code are the same; what was slowed down by a fifth is named."""

import random
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import pytest

from costlab.judge.compare import compare, show
from costlab.record.names import Name, call, family_of
from costlab.record.result import Metric, Result, Section
from costlab.sections.collectives.operation import OPERATIONS

DATA = Path(__file__).parents[1] / "data"
Slow = Callable[[Name], float]


def a_run(seed: int, slow: Slow = lambda _: 1.0, *, noise: float = 0.10) -> Result:
    """A run as this bench makes it: a curve for each link and operation, with a machine's noise."""
    chance = random.Random(seed)
    drift = chance.uniform(0.95, 1.05)
    metrics = []
    for link in ("gloo", "shared-memory"):
        for operation in OPERATIONS:
            for power in range(10, 25):
                one = call(link, operation, 2, 1 << power, "blocking")
                seconds = (1e-4 + one.size / 1e9) * slow(one) * drift
                launches = sorted(seconds * chance.lognormvariate(0, noise) for _ in range(5))
                low, _, value, _, high = launches
                metrics.append(Metric(id=one.id, value=value, unit="s", low=low, high=high))
    counted = Metric(id="count.block.forward.all_reduce", value=2, unit="count", how="counted")
    return Result(
        provenance={"processor": "some", "cores": 2},
        sections={
            "collectives": Section(status="complete", metrics=metrics),
            "counts": Section(status="complete", metrics=[counted]),
        },
    )


@pytest.mark.parametrize("seed", range(20))
def test_two_runs_of_the_same_code_are_the_same(seed: int) -> None:
    compared = compare(a_run(seed), a_run(1000 + seed))
    assert [f.name for f in compared.families if f.significant] == []
    assert not compared.differs
    assert len(compared.families) == 12


@pytest.mark.parametrize("seed", range(20))
def test_an_operation_slowed_down_by_a_fifth_is_named_and_no_other(seed: int) -> None:
    def slow(one: Name) -> float:
        return 1.2 if (one.link, one.operation) == ("gloo", "all_gather") else 1.0

    compared = compare(a_run(seed), a_run(1000 + seed, slow))
    beyond = [family for family in compared.families if family.significant]
    assert [f.name for f in beyond] == ["collective.gloo.all_gather.n2.*.blocking"]
    assert 1.12 < beyond[0].change / compared.whole < 1.30
    assert compared.differs


def test_a_machine_slowed_down_altogether_is_one_finding() -> None:
    compared = compare(a_run(1), a_run(2, lambda _: 1.4))
    assert compared.whole_beyond
    assert compared.differs
    assert compared.whole > 1.15
    assert not any(family.significant for family in compared.families)


def test_on_a_slower_machine_a_familys_words_and_a_bandwidth_are_beside_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where all takes 1.4 times, what takes as long is faster, and bytes a second are fewer."""
    stays = "collective.gloo.all_gather.n2.*.blocking"
    one, other = a_run(1), a_run(1, lambda one: 1.0 if family_of(one.id) == stays else 1.4)
    for result, speed in ((one, 1.4), (other, 1.0)):
        bandwidth = Metric(id="fit.gloo.all_reduce.n2.bandwidth", value=speed, unit="B/s")
        result.sections["fit"] = Section(status="complete", metrics=[bandwidth])
    compared = compare(one, other)
    assert [family.name for family in compared.families if family.significant] == [stays]
    show(compared, "one", "other")
    assert "29 % faster than the rest" in capsys.readouterr().out


def test_what_has_nothing_in_common_is_not_the_same() -> None:
    one, other = a_run(1), a_run(1)
    one.sections = {"counts": one.sections["counts"]}
    del other.sections["counts"]
    with pytest.raises(click.UsageError, match="no metric in common"):
        compare(one, other)


def test_a_section_that_broke_off_is_told() -> None:
    one, other = a_run(1), a_run(1)
    other.sections["counts"] = Section(note="interrupted", metrics=one.sections["counts"].metrics)
    assert compare(one, other).machines == ["the second, counts: broke off: interrupted"]


def test_what_is_counted_has_no_noise() -> None:
    one, other = a_run(1), a_run(1)
    metric = Metric(id="count.block.forward.all_reduce", value=3, unit="count", how="counted")
    other.sections["counts"].metrics = [metric]
    compared = compare(one, other)
    assert compared.counts == ["count.block.forward.all_reduce: 2, 3"]
    assert compared.differs


def test_what_only_one_has_and_another_machine_are_said() -> None:
    one, other = a_run(1), a_run(1)
    other.provenance = {"processor": "other", "cores": 2}
    del other.sections["counts"]
    compared = compare(one, other)
    assert compared.machines == ["another processor: some, other"]
    assert compared.missing == {"count": 1}
    assert not compared.differs


def test_a_run_on_a_busy_machine_is_told() -> None:
    one, other = a_run(1), a_run(1)
    other.provenance = {**one.provenance, "load-before": 7.5}
    assert compare(one, other).machines == [
        "the second began on a busy machine: load 7.5 on 2 cores"
    ]


def real(name: str, slow: str = "") -> Result:
    """One of two runs of the same code on a two-core machine, an hour apart, as they were."""
    runs = msgspec.json.decode((DATA / "two-runs.json").read_bytes())
    metrics = [
        Metric(id=id_, value=value * factor, unit="s", low=low * factor, high=high * factor)
        for id_, (value, low, high) in runs[name].items()
        for factor in [1.2 if family_of(id_) == slow else 1.0]
    ]
    return Result(sections={"collectives": Section(status="complete", metrics=metrics)})


@pytest.mark.parametrize(("one", "other"), [("first", "second"), ("second", "first")])
def test_two_real_runs_agree_and_a_fifth_planted_in_one_is_called_out(one: str, other: str) -> None:
    assert not compare(real(one), real(other)).differs
    families = {family.name for family in compare(real(one), real(other)).families}
    found = {
        name
        for name in families
        if [f.name for f in compare(real(one), real(other, name)).families if f.significant]
        == [name]
    }
    assert len(families) == 12
    assert len(found) >= 11


def whole_run(name: str, slow: str = "") -> Result:
    """One of two whole runs of the quick profile on a two-core machine, one after the other."""
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
    ("one", "other"), [("first", "second"), pytest.param("second", "first", marks=pytest.mark.ci)]
)
def test_two_whole_runs_agree_and_a_fifth_is_called_out_where_noise_allows(
    one: str, other: str
) -> None:
    compared = compare(whole_run(one), whole_run(other))
    assert not compared.differs
    times = [family.name for family in compared.families if family.unit == "s"]
    found = {
        name
        for name in times
        if [
            f.name
            for f in compare(whole_run(one), whole_run(other, name)).families
            if f.significant
        ]
        == [name]
    }
    assert len(times) == 43
    assert len(found) >= 28  # the others vary by as much from run to run


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
