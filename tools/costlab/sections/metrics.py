"""How sections make metrics: of steps timed side by side (`implementations/rounds`); of counts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from costlab.record.names import Name
from costlab.record.result import How, Metric
from costlab.record.statistics import median_ci, paired_ratio_ci

Detail = dict[str, str | float | int | bool]


def timed(name: Name, seconds: Sequence[float], **detail: str | float | int | bool) -> Metric:
    """One contestant's time: the median of its rounds, with its interval."""
    return by_rounds(name, seconds, "s", how="measured", **detail)


def ratio(
    name: Name,
    numerator: Sequence[float],
    denominator: Sequence[float],
    **detail: str | float | int | bool,
) -> Metric:
    """How many times `other` `one` takes, round by round.

    A round runs both within a moment of each other, so its ratio is free of the machine's drift.
    """
    rounds = [a / b for a, b in zip(numerator, denominator, strict=True)]
    value, low, high = paired_ratio_ci(numerator, denominator)
    metric = by_rounds(name, rounds, "ratio", how="measured", **detail)
    return msgspec.structs.replace(metric, value=value, low=low, high=high)


def by_rounds(
    name: Name, rounds: Sequence[float], unit: str, *, how: How = "derived",
    **detail: str | float | int | bool,
) -> Metric:  # fmt: skip
    """What each round says by itself: the median of the rounds, with its interval."""
    median = median_ci(rounds)
    return Metric(
        id=name.id, value=median.value, unit=unit, how=how, low=median.low, high=median.high,
        samples=len(rounds), series=[list(rounds)], detail=detail,
    )  # fmt: skip


def derived(
    name: Name, value: float, unit: str, how: How = "derived", *, samples: int = 1,
    spread: tuple[float, float] | None = None, **detail: str | float | int | bool,
) -> Metric:  # fmt: skip
    """One value: counted, modelled, or what arithmetic makes of metrics that were measured."""
    low, high = spread or (None, None)
    return Metric(
        id=name.id, value=value, unit=unit, how=how, low=low, high=high, samples=samples,
        detail=detail,
    )  # fmt: skip


def counted(
    name: str, value: float, unit: str = "count", how: How = "counted", **detail: Any
) -> Metric:
    """Return the metric `count.NAME`."""
    return derived(Name("count", of=name), float(value), unit, how, **detail)
