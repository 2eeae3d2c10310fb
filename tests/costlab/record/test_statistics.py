"""Statistics: medians with intervals that contain the truth, and medians over launches."""

import random
import statistics
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.record.statistics import Estimate, median_ci, over_launches, p20_ci, percentile
from costlab.sections.metrics import by_rounds, ratio, timed

TIMES = st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=200)
NAME = Name("timeline", "000")


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, p) for p in (0, 20, 21, 50, 95, 100)] == [1, 1, 2, 3, 5, 5]


def test_of_no_values_there_is_no_statistic() -> None:
    for what in (median_ci, lambda values: percentile(values, 50)):
        with pytest.raises(ValueError, match="no values"):
            what([])
    with pytest.raises(ValueError, match="no number"):
        median_ci([1.0, float("nan")])


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Of six values all lie on one side of the median in 2 of 64 cases, of five in 2 of 32; of
    # twenty five or fewer lie on one of the sides in 43,400 of 2^20.
    [(1, 1, 1), (2, 1, 2), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (70, 27, 44)],
)
def test_the_interval_is_read_off_the_sorted_values(count: int, low: int, high: int) -> None:
    values = [float(place) for place in range(1, count + 1)]
    random.Random(count).shuffle(values)
    assert median_ci(values) == (statistics.median(values), low, high)


@pytest.mark.parametrize(("statistic", "true"), [(median_ci, 0.6931), (p20_ci, 0.2231)])
@pytest.mark.parametrize("count", [17, 21, 40, 1100])
def test_the_interval_holds_the_true_value_as_often_as_it_says(
    count: int, statistic: Callable[[Sequence[float]], Estimate], true: float
) -> None:
    """Of a distribution with a long tail, as timings have."""
    draw, covered, tries = random.Random(count), 0, 2000 if count < 100 else 300
    for _ in range(tries):
        interval = statistic([draw.expovariate(1.0) ** 3 for _ in range(count)])
        covered += interval.low <= true**3 <= interval.high
    assert covered / tries > 0.93


def test_of_calls_it_is_the_20th_percentile_where_there_are_enough_to_hold_it() -> None:
    calls = [float(number) for number in range(1, 18)]
    assert p20_ci(calls) == (4, 1, 8)  # 0.8^17 = 0.0225: one time in 44 none lies below it
    assert p20_ci(calls[:16]) == median_ci(calls[:16]) == (8.5, 4, 13)


def test_what_the_scheduler_does_to_most_calls_moves_their_value_little() -> None:
    quiet = random.Random(1)
    calm = [1e-4 * quiet.uniform(0.98, 1.02) for _ in range(200)]
    disturbed = [t + (4e-3 if quiet.random() < 0.6 else 0) for t in calm]
    assert p20_ci(disturbed).value == pytest.approx(p20_ci(calm).value, rel=0.03)
    assert median_ci(disturbed).value > 10 * median_ci(calm).value


@given(TIMES, TIMES)
@example([1.0, 2.0], [0.1, 0.3])
@example([1e-9], [3e3])
def test_every_metric_made_of_drawn_rounds_lies_within_its_spread(
    numerators: list[float], denominators: list[float]
) -> None:
    rounds = min(len(numerators), len(denominators))
    numerators, denominators = numerators[:rounds], denominators[:rounds]
    metrics = [
        timed(NAME, numerators),
        ratio(NAME, numerators, denominators),
        ratio(NAME, denominators, numerators),
        by_rounds(
            NAME, [1 - b / a for a, b in zip(numerators, denominators, strict=True)], "ratio"
        ),
    ]
    metrics.append(over_launches([timed(NAME, [value]) for value in numerators]))
    calls = p20_ci(numerators)
    assert calls.low <= calls.value <= calls.high
    for metric in metrics:
        assert metric.low is not None and metric.high is not None
        assert metric.low <= metric.value <= metric.high
        assert min(numerators + denominators) > 0 and metric.samples == rounds
    assert metrics[1].value == pytest.approx(1 / metrics[2].value)


def test_a_ratio_is_of_paired_rounds_and_not_of_two_medians() -> None:
    numerators, denominators = (
        [1.0, 20.0, 3.0],
        [2.0, 40.0, 1.0],
    )  # medians 3 and 2, yet half as long twice
    metric = ratio(NAME, numerators, denominators)
    assert [metric.low, metric.value, metric.high] == pytest.approx([0.5, 0.5, 3.0])


def make_launches(*values: float) -> list[Metric]:
    return [
        Metric(
            id="a.b", value=v, unit="s", low=v * 0.9, high=v * 2, samples=10, detail={"p95": v},
            series=[[v]],
        )
        for v in values
    ]  # fmt: skip


def test_several_launches_become_the_median_of_launches_by_the_same_rule() -> None:
    metric = over_launches(make_launches(3.0, 1.0, 2.0))
    assert (metric.value, metric.low, metric.high, metric.samples) == (2.0, 1.0, 3.0, 30)
    assert metric.detail == {"p95": 2.0, "launches": 3}
    assert metric.series == [[3.0], [1.0], [2.0]]
    nine = over_launches(make_launches(*map(float, range(1, 10))))
    assert (nine.value, nine.low, nine.high) == (5.0, 2.0, 8.0)


def test_one_launch_stays_as_it_is() -> None:
    (launch,) = make_launches(3.0)
    assert over_launches([launch]) == launch
