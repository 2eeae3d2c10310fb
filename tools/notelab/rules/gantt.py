"""N308: does each task of a gantt stand where its times say?

Mermaid takes a start in digits as milliseconds, under `X` (seconds) too, where an end is seconds.
Of a number with a fraction it makes a date of 2001, or no length. All of it parses.
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


class Misread(NamedTuple):
    """A task whose times are drawn otherwise than written; `line` counts from 1."""

    line: int
    task: str
    why: str


def misread(text: str) -> Iterator[Misread]:
    """Find what mermaid misreads in a gantt whose times are numbers."""
    unit = _FORMAT.search(text)
    if unit is None or unit[1] not in ("x", "X"):
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
            yield Misread(number, name.rstrip(), why)
        elif unit[1] == "X" and len(times) == 2 and _WHOLE.match(times[0]) and int(times[0]):
            why = f"mermaid takes its start, {times[0]}, as milliseconds, though X is seconds"
            yield Misread(number, name.rstrip(), why)
