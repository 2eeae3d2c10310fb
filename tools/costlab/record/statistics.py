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

One series is another thing: the calls of a collective, of microseconds, where a slice of the
scheduler's takes milliseconds. Half of them may be hit in one launch and few in the next, so their
median jumps; of them the 20th percentile is taken, with its interval by the same reasoning. Fewer
than 17 can't hold it (none lies below it in 0.8^n of cases): then it is the median.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from costlab.record.result import Metric

TAIL = 40  # at either end, one time in so many: 95 % lie between
CALLS = 20  # per cent


class Estimate(NamedTuple):
    """What stands for a series, and the interval that holds the true one; low <= value <= high."""

    value: float
    low: float
    high: float


def median_ci(values: Sequence[float]) -> Estimate:
    """Return a series' median; its interval, or where there are too few, the least and the most.

    Raises:
        ValueError: there are no values, or one is no number.
    """
    ordered = _sorted(values)
    low, high = _ranks(len(ordered), 50) or (1, len(ordered))
    return Estimate(statistics.median(ordered), ordered[low - 1], ordered[high - 1])


def paired_ratio_ci(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Return how many times `other` `one` is, round by round.

    Medians are taken of logarithms, so that the other way round gives the inverse.
    """
    logs = [math.log(a / b) for a, b in zip(numerator, denominator, strict=True)]
    return Estimate(*map(math.exp, median_ci(logs)))


def p20_ci(seconds: Sequence[float]) -> Estimate:
    """Return the 20th percentile of a collective's calls and its interval, or of few the median.

    Raises:
        ValueError: there are no values, or one is no number.
    """
    ordered = _sorted(seconds)
    ranks = _ranks(len(ordered), CALLS)
    if not ranks:
        return median_ci(ordered)
    low, high = (ordered[rank - 1] for rank in ranks)
    return Estimate(percentile(ordered, CALLS), low, high)


def _sorted(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("no values to take a median of")
    if any(math.isnan(value) for value in values):
        raise ValueError("a series holds a value that is no number")
    return sorted(values)


@cache
def _ranks(count: int, percent: int) -> tuple[int, int] | None:
    """Return from which to which of sorted values, from 1, a percentile is held; None if by none.

    As many values lie below it as a coin that falls so says. Counted in cases of 100^count.
    """
    below = [
        math.comb(count, some) * percent**some * (100 - percent) ** (count - some)
        for some in range(count + 1)
    ]
    low = _outside(below, 100**count)
    high = count + 1 - _outside(below[::-1], 100**count)
    return (low, high) if low >= 1 and high <= count else None


def _outside(cases: Sequence[int], whole: int) -> int:
    """Return how many of these cases, from the first, are together no more than one in TAIL."""
    total, count = 0, 0
    for case in cases:
        total += case
        if total * TAIL > whole:
            break
        count += 1
    return count


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
    median = median_ci([metric.value for metric in metrics])
    representative = ordered[(len(ordered) - 1) // 2]
    return msgspec.structs.replace(
        representative,
        value=median.value,
        low=median.low,
        high=median.high,
        samples=sum(metric.samples for metric in metrics),
        series=[series for metric in metrics for series in metric.series],
        detail={**representative.detail, "launches": len(metrics)},
    )
