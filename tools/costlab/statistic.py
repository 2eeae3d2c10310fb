"""The one statistic: of every series the median, and how far the median is known.

The interval is read off the sorted values and supposes nothing of how they are distributed: each
falls below the true median as a coin falls, so from the k-th value to the k-th from the end it is
held with a probability that the binomial distribution gives (H. A. David and H. N. Nagaraja, Order
Statistics, 7.1; J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems,
chapter 2). Six values are the fewest that can say so with 95 %: 1 - 2/2^6. Fewer give all they
have, from the least to the most; five hold it with 94 %, three with 75 %.

A ratio is one of every round, of two steps that ran within a moment of each other; its value is
the median of those, never one median over another. Launches count as launches: what several made
is the median of their values, since within a launch timings resemble one another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from costlab.result import Metric

TAIL = 40  # at either end, one time in so many: 95 % lie between


class Middle(NamedTuple):
    """A series' median, and the interval that holds the true one; low <= value <= high."""

    value: float
    low: float
    high: float


def middle(values: Sequence[float]) -> Middle:
    """Sum a series up.

    Raises:
        ValueError: there are no values, or one is no number.
    """
    if not values:
        raise ValueError("no values to take a median of")
    if any(math.isnan(value) for value in values):
        raise ValueError("a series holds a value that is no number")
    ordered = sorted(values)
    cut = max(0, _cut(len(ordered)) - 1)
    return Middle(statistics.median(ordered), ordered[cut], ordered[-1 - cut])


def _cut(count: int) -> int:
    """Return k, the most for which the k-th values from either end hold the median; 0 if none do.

    They miss it where fewer than k of the values lie on one side of it.
    """
    cut, outside = 0, 1  # cases of 2^count: all on one side; then all but one, and so on
    while outside * TAIL <= 1 << count:
        cut += 1
        outside += math.comb(count, cut)
    return cut


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


def over_launches(metrics: Sequence[Metric]) -> Metric:
    """Return one metric for the same one of several launches: the median of theirs.

    Fresh processes lie elsewhere in memory and on other cores: what differs between them is the
    spread that a claim about time has to show. The detail is the middle launch's.
    """
    if len(metrics) == 1:
        return metrics[0]
    ordered = sorted(metrics, key=lambda metric: metric.value)
    found = middle([metric.value for metric in metrics])
    one = ordered[(len(ordered) - 1) // 2]
    return msgspec.structs.replace(
        one,
        value=found.value,
        low=found.low,
        high=found.high,
        samples=sum(metric.samples for metric in metrics),
        series=[series for metric in metrics for series in metric.series],
        detail={**one.detail, "launches": len(metrics)},
    )
