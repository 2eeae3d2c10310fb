"""Metrics of steps that were timed side by side (`contestants/rounds`)."""

from __future__ import annotations

from collections.abc import Sequence

from costlab.result import How, Metric
from costlab.statistic import paired, summary

Detail = dict[str, str | float | int | bool]


def timed(name: str, seconds: Sequence[float], **detail: str | float | int | bool) -> Metric:
    """One contestant's time: its 20th percentile, with the quartiles of its rounds."""
    found = summary(seconds)
    return Metric(
        id=name,
        value=found.typical,
        unit="s",
        low=found.q1,
        high=found.q3,
        samples=found.samples,
        detail={"median": found.median, **detail},
    )


def ratio(
    name: str, one: Sequence[float], other: Sequence[float], **detail: str | float | int | bool
) -> Metric:
    """How many times `other` `one` takes, round by round.

    A round runs both within a moment of each other, so its ratio is free of the machine's drift.
    """
    rounds = [a / b for a, b in zip(one, other, strict=True)]
    return by_rounds(name, rounds, "ratio", how="measured", **detail)


def by_rounds(
    name: str, rounds: Sequence[float], unit: str, *, how: How = "derived",
    **detail: str | float | int | bool,
) -> Metric:  # fmt: skip
    """What each round says by itself: the median of the rounds, with its interval."""
    value, low, high = paired(rounds)
    return Metric(
        id=name, value=value, unit=unit, how=how, low=low, high=high, samples=len(rounds),
        detail=detail,
    )  # fmt: skip


def derived(name: str, value: float, unit: str, **detail: str | float | int | bool) -> Metric:
    """What arithmetic makes of metrics that were measured."""
    return Metric(id=name, value=value, unit=unit, how="derived", detail=detail)
