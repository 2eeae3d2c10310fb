"""A result as a table for other programs: every metric a line, comma-separated."""

import csv
from pathlib import Path, PurePosixPath

from costlab.record.attribution import Attribution, attribute
from costlab.record.result import load

FIELDS = ("id", "value", "unit", "low", "high", "samples", "how")


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
        lines.writerow([*FIELDS, *Attribution._fields])
        for metric in load(lab / source).metrics().values():
            lines.writerow([*(getattr(metric, field) for field in FIELDS), *attribute(metric)])
    return path
