"""A result as a table for other programs: every metric a line, comma-separated."""

import csv
from pathlib import Path, PurePosixPath

from costlab.record.result import load
from costlab.record.whose import Whose, whose

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
        lines.writerow([*FIELDS, *Whose._fields])
        for one in load(lab / source).metrics().values():
            lines.writerow([*(getattr(one, field) for field in FIELDS), *whose(one)])
    return path
