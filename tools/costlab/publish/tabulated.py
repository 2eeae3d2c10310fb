"""A table of the results page: which metrics it takes, and what stands beside each value.

A table takes the metrics whose ids fit its pattern and that no table before it took; its columns
come from the pattern's named groups. Each metric has one row, since a row has one quotable value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from costlab.record import quantity
from costlab.record.result import Metric
from costlab.record.words import Words

Metrics = Mapping[str, Metric]


class Column(msgspec.Struct, frozen=True):
    """A column beside the value: a named group of the pattern, or something in the detail."""

    title: Words
    group: str = ""
    detail: str = ""
    unit: str = ""
    other: str = ""  # another metric's id, with the groups in braces


class Table(msgspec.Struct, frozen=True):
    """One table.

    Args:
        folded: hidden behind its title until it is asked for.
        swept: below it is said where it and the sweep of single collectives disagree.
    """

    title: Words
    pattern: str
    columns: tuple[Column, ...]
    section: str
    folded: bool = False
    swept: bool = False

    def rows(self, metrics: Metrics) -> list[tuple[re.Match[str], Metric]]:
        """Return the metrics that fit, by their groups in natural order."""
        found = [
            (match, metric)
            for name, metric in metrics.items()
            if (match := re.fullmatch(self.pattern, name))
        ]
        return sorted(found, key=lambda one: [_natural(group) for group in one[0].groups()])

    def cell(self, column: Column, match: re.Match[str], metric: Metric, metrics: Metrics) -> str:
        """Return what stands in a column of a metric's row; nothing where there is nothing."""
        if column.group:
            said = match[column.group] or ""
            return GROUPS.get(column.group, _plain)(said)
        if column.detail:
            value = metric.detail.get(column.detail)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return quantity.written(float(value), column.unit)
            return str(value) if value is not None else ""
        beside = metrics.get(column.other.format(**match.groupdict()))
        return quantity.shown(beside) if beside else ""


def _natural(text: str | None) -> tuple[tuple[int, str], ...]:
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text or "")
    )


def _plain(said: str) -> str:
    return said


def _bytes(said: str) -> str:
    return quantity.written(float(said), "B")


def _hyphened(said: str) -> str:
    return said.replace("_", "-")


def _code(said: str) -> str:
    return f"`{said.lstrip('.')}`" if said else ""


GROUPS: dict[str, Callable[[str], str]] = {
    "bytes": _bytes,
    "op": _hyphened,
    "what": _code,
    "who": _code,
}
