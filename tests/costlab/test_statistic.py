"""The statistic: nearest-rank percentiles of one launch, and what several launches make."""

import random

import pytest

from costlab.result import Metric
from costlab.statistic import over_launches, percentile, summary


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, p) for p in (0, 20, 21, 50, 95, 100)] == [1, 1, 2, 3, 5, 5]


def test_of_no_values_there_is_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        summary([])


def test_the_typical_value_ignores_what_the_scheduler_does() -> None:
    quiet = random.Random(1)
    calm = [1e-4 * quiet.uniform(0.98, 1.02) for _ in range(200)]
    disturbed = [t + (4e-3 if quiet.random() < 0.4 else 0) for t in calm]
    assert summary(disturbed).typical == pytest.approx(summary(calm).typical, rel=0.03)
    assert sum(disturbed) > 10 * sum(calm)


def launched(*values: float) -> list[Metric]:
    return [
        Metric(id="a.b", value=v, unit="s", low=v * 0.9, high=v * 2, samples=10, detail={"p95": v})
        for v in values
    ]


def test_several_launches_become_their_middle_with_least_and_most() -> None:
    made = over_launches(launched(3.0, 1.0, 2.0))
    assert (made.value, made.low, made.high, made.samples) == (2.0, 1.0, 3.0, 30)
    assert made.detail == {"p95": 2.0, "launches": 3}


def test_one_launch_stays_as_it_is() -> None:
    (one,) = launched(3.0)
    assert over_launches([one]) == one
