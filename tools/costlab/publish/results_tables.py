"""The tables of the results page: which metrics each takes, and what stands beside each value.

A table takes the metrics whose names have the fields that it wants and that no table before it
took. Each metric has one row or one cell, which links lead to. They stand in tables.toml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from costlab.record import quantity
from costlab.record.names import Name, natural
from costlab.record.result import Metric
from costlab.record.words import Words

Metrics = Mapping[str, Metric]
# Fields whose values are words of the bench's own.
_CODE = ("what", "of", "over", "schedule", "dtype", "card")


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column beside the value: fields of the name, something in the detail, or another metric.

    Args:
        fields: one, or several in a row, of a name's.
        detail: what of the detail, in `unit`.
        other: the fields in which another metric's name differs from the row's; "=over" is what
            the row's own name has there.
    """

    title: Words
    fields: str = ""
    detail: str = ""
    unit: str = ""
    replacements: Mapping[str, str] = {}

    def cell(self, metric: Metric, metrics: Metrics) -> str:
        """Return what stands in a metric's row; nothing where there is nothing."""
        if self.fields:
            return format_fields(metric.name, self.fields)
        if self.detail:
            value = metric.detail.get(self.detail)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return quantity.format_value(float(value), self.unit)
            return str(value) if value is not None else ""
        changed = {
            field: getattr(metric.name, value[1:]) if value.startswith("=") else value
            for field, value in self.replacements.items()
        }
        compared = metrics.get(metric.name.but(**changed).id)
        return quantity.format_metric(compared) if compared else ""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table.

    Args:
        wanted: which metrics it takes.
        by: the fields of their names that order them, first to last.
        columns: their names among COLUMNS.
        across: the fields whose values are columns of the table that is shown; the rows that it
            links to are folded beneath it.
        places: there are no such rows: links lead to the cells.
        each: a field; the table is made once for each of its values, which the title has in braces.
        open: shown row by row; other tables are folded behind their titles.
        swept: below it is said where it and the sweep of single collectives disagree.
    """

    title: Words
    wanted: dict[str, str | int | list[str | int]]
    by: str
    section: str
    columns: tuple[str, ...] = ()
    across: str = ""
    places: bool = False
    each: str = ""
    open: bool = False
    swept: bool = False

    def split(self, metrics: Iterable[Metric]) -> Iterator[Table]:
        """Yield the tables that it stands for: itself, or one for each value of `each`."""
        if not self.each:
            yield self
            return
        for value in sorted({getattr(metric.name, self.each) for metric in self.rows(metrics)}):
            shown = value.replace("_", "-")
            title = Words(en=self.title.en.format(shown), es=self.title.es.format(shown))
            wanted = {**self.wanted, self.each: value}
            yield msgspec.structs.replace(self, wanted=wanted, title=title, each="")

    def rows(self, metrics: Iterable[Metric]) -> list[Metric]:
        """Return the metrics that it takes, in natural order."""
        fitting = [metric for metric in metrics if metric.name.fits(self.wanted)]
        fields = self.by.split()
        return sorted(
            fitting, key=lambda metric: [natural(getattr(metric.name, f)) for f in fields]
        )


def format_fields(name: Name, fields: str) -> str:
    """Return what a name has in a field, or in several beside one another, as a reader is told."""
    if fields == "size":
        return quantity.format_value(float(name.size), "B")
    names = fields.split()
    values = ".".join(str(getattr(name, field)) for field in names if getattr(name, field))
    if names[0] in _CODE:
        return f"`{values}`" if values else ""
    return values.replace("_", "-")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    column: dict[str, Column]
    table: tuple[Table, ...]


_FILE = msgspec.toml.decode(Path(__file__).with_name("tables.toml").read_bytes(), type=_File)
COLUMNS, TABLES = _FILE.column, _FILE.table
