"""What a series of timings is summed up as, here where a machine has other things to do.

A step that nobody disturbs takes about the same time every time; a disturbed one takes longer by
the scheduler's slice, milliseconds. So the low quantiles repeat where means and even medians do
not. The 20th percentile is the typical value: low enough to leave the disturbed ones out, high
enough to stand on several samples, which the least does not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from costlab.result import Metric


@dataclass(frozen=True)
class Summary:
    """Quantiles of a series, in its unit; each is one of its values (nearest rank)."""

    samples: int
    least: float
    p10: float
    p20: float
    q1: float
    median: float
    q3: float
    p95: float

    @property
    def typical(self) -> float:
        """The value to quote and to compare: the 20th percentile."""
        return self.p20


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the least of the values that at least `percent` % of them do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def summary(seconds: Sequence[float]) -> Summary:
    """Sum a series up.

    Raises:
        ValueError: it is empty.
    """
    p10, p20, q1, median, q3, p95 = (percentile(seconds, p) for p in (10, 20, 25, 50, 75, 95))
    return Summary(len(seconds), min(seconds), p10, p20, q1, median, q3, p95)


def paired(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of ratios or differences of paired rounds, and an interval about it.

    The interval holds the median of all such rounds in 95 of 100 cases, whatever they are
    distributed like: each round lies above or below it as a coin falls. Five rounds or fewer can't
    say so much; theirs goes from the least to the most.

    Raises:
        ValueError: there are no rounds.
    """
    if not values:
        raise ValueError("no rounds to take a median of")
    ordered, count = sorted(values), len(values)
    cut, outside = 0, 1 / 2**count  # so likely are no more than `cut` values below the median
    while outside <= 0.025:
        cut += 1
        outside += math.comb(count, cut) / 2**count
    ends = ordered[max(0, cut - 1)], ordered[min(count - 1, count - cut)]
    return statistics.median(ordered), *ends


def over_launches(metrics: Sequence[Metric]) -> Metric:
    """Return one metric for the same one of several launches: the middle, from least to most.

    Fresh processes lie elsewhere in memory and on other cores: what differs between them is the
    spread that a claim about time has to show. The detail is the middle launch's.
    """
    if len(metrics) == 1:
        return metrics[0]
    ordered = sorted(metrics, key=lambda metric: metric.value)
    middle = ordered[(len(ordered) - 1) // 2]
    return msgspec.structs.replace(
        middle,
        value=statistics.median(metric.value for metric in metrics),
        low=ordered[0].value,
        high=ordered[-1].value,
        samples=sum(metric.samples for metric in metrics),
        detail={**middle.detail, "launches": len(metrics)},
    )
