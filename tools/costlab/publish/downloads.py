"""A result as a table for other programs: every metric a line, comma-separated.

`shardbook check` reads the numbers that pages quote from its columns `id` and `formatted`.
"""

import csv
from pathlib import Path, PurePosixPath

from costlab.record import quantity
from costlab.record.attribution import Attribution, attribute
from costlab.record.result import load

FIELDS = ("id", "value", "unit", "low", "high", "samples", "how")
# What a collective's line has besides: its calls' launches, its speeds and its slow calls.
DETAILS = ("launches", "algbw", "busbw", "p95")


def name(source: str) -> str:
    """Return the table's file, beside the result's.

    >>> name("results/reference.json")
    'results/reference.csv'
    """
    return str(PurePosixPath(source).with_suffix(".csv"))


def write(lab: Path, source: str) -> Path:
    """Write the table of `lab`/`source` beside it.

    Raises:
        ResultError: there is no such result, or it can't be read.
    """
    path = lab / name(source)
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*FIELDS, *Attribution._fields, "formatted", *DETAILS])
        for metric in load(lab / source).metrics().values():
            fields = (getattr(metric, field) for field in FIELDS)
            details = (metric.detail.get(detail, "") for detail in DETAILS)
            formatted = quantity.format_metric(metric)
            lines.writerow([*fields, *attribute(metric), formatted, *details])
    return path
