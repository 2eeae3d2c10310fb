"""N308: checks that mermaid draws each task of a gantt diagram at the times in its line.

Mermaid reads a start in digits as milliseconds, even under `dateFormat X` (seconds), where an end
is in seconds. A number with a fraction becomes a date in 2001 or has no length. Mermaid reports no
error for any of these.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

EXPECTED = "`dateFormat x` and whole numbers; `axisFormat %Q` shows them on the axis as they are"
_FORMAT = re.compile(r"^[ \t]*dateFormat[ \t]+(\S+)", re.MULTILINE)
_NO_TASK = ("%%", "title ", "section ", "click ", "accTitle", "accDescr")
_TAGS = {"active", "done", "crit", "milestone", "vert"}
_WHOLE = re.compile(r"[0-9]+\Z")
_FRACTION = re.compile(r"-?[0-9]*\.[0-9]+\Z")


class MisreadTask(NamedTuple):
    """A task that mermaid draws at other times than written; `line` counts from 1."""

    line: int
    task: str
    why: str


def find_misread(text: str) -> Iterator[MisreadTask]:
    """Yield the tasks that mermaid misreads in a gantt diagram whose times are numbers."""
    date_format = _FORMAT.search(text)
    if date_format is None or date_format[1] not in ("x", "X"):
        return
    for number, line in enumerate(text.split("\n"), 1):
        name, _, data = line.strip().partition(":")
        if name.startswith(_NO_TASK):
            continue
        times = [part.strip() for part in data.split(",")]
        times = [part for part in times if part not in _TAGS][-2:]
        fractions = [part for part in times if _FRACTION.match(part)]
        if fractions:
            why = f"mermaid reads whole numbers only, not {fractions[0]}"
            yield MisreadTask(number, name.rstrip(), why)
        elif date_format[1] == "X" and len(times) == 2 and _WHOLE.match(times[0]) and int(times[0]):
            why = f"mermaid reads its start, {times[0]}, as milliseconds, though X means seconds"
            yield MisreadTask(number, name.rstrip(), why)
