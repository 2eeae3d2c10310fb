"""What a series of timings is summed up as, here where a machine has other things to do.

A step that nobody disturbs takes about the same time every time; a disturbed one takes longer by
the scheduler's slice, milliseconds. So the low quantiles repeat where means and even medians do
not. The 20th percentile is the typical value: low enough to leave the disturbed ones out, high
enough to stand on several samples, which the least does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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


def over_launches(metrics: Sequence[Metric]) -> Metric:
    """Return one metric for the same one of several launches: the middle, from least to most.

    Fresh processes lie elsewhere in memory and on other cores: what differs between them is the
    spread that a claim about time has to show. The detail is the middle launch's.
    """
    if len(metrics) == 1:
        return metrics[0]
    ordered = sorted(metrics, key=lambda metric: metric.value)
    middle = ordered[(len(ordered) - 1) // 2]
    return Metric(
        id=middle.id,
        value=statistics.median(metric.value for metric in metrics),
        unit=middle.unit,
        how=middle.how,
        low=ordered[0].value,
        high=ordered[-1].value,
        samples=sum(metric.samples for metric in metrics),
        detail={**middle.detail, "launches": len(metrics)},
    )
