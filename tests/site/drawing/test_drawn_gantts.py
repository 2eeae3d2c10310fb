"""Each task of each drawn gantt starts and ends where its source says, read off the drawn axis.

Mermaid takes a task's times in two ways (`dateFormat X`: starts as milliseconds, ends as seconds),
parses all and draws what nobody wrote. So nothing here asks mermaid: the source is read as its
author would, and the picture as its reader would.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tests.site.drawing.drawn import EACH, Drawings

# How many milliseconds one is, in the source and on the axis.
SOURCE = {"x": 1, "X": 1000}
AXIS = {"%Q": 1, "%s": 1000}
TAGS = {"active", "done", "crit", "milestone"}
NOT_TASKS = re.compile("---|%%|gantt|title|section|displayMode|dateFormat|axisFormat|tick")
PIXELS = 1.5


class Task(NamedTuple):
    """A task as its line has it, its times in milliseconds."""

    name: str
    start: float
    end: float


def read_setting(text: str, key: str) -> str:
    match = re.search(rf"^\s*{key}\s+(\S+)\s*$", text, re.MULTILINE)
    assert match, f"a gantt without {key} has dates on its axis, which this test doesn't read"
    return match[1]


def read_tasks(text: str) -> list[Task]:
    """Read the tasks of a gantt; each has a start and an end, in whole numbers."""
    unit = SOURCE[read_setting(text, "dateFormat")]
    parsed = []
    for line in (line.strip() for line in text.splitlines()):
        if not line or NOT_TASKS.match(line):
            continue
        name, _, rest = line.partition(":")
        parts = [part for part in re.split(r"\s*,\s*", rest.strip()) if part not in TAGS]
        assert all(part.isdigit() for part in parts[-2:]), f"this test reads no such time: {line}"
        parsed.append(Task(name.strip(), int(parts[-2]) * unit, int(parts[-1]) * unit))
    return parsed


class Axis:
    """The drawn axis, which converts times to places."""

    def __init__(self, ticks: list[dict[str, Any]], unit: int) -> None:
        first, last = (min, max)
        times = [int(tick["text"]) * unit for tick in ticks]
        places = [tick["centre"] for tick in ticks]
        self.origin, self.place = first(times), first(places)
        self.scale = (last(places) - first(places)) / (last(times) - first(times))

    def at(self, time: float) -> float:
        return self.place + (time - self.origin) * self.scale


@EACH
def test_each_task_starts_and_ends_where_its_source_says(
    drawings: Drawings, language: str, width: int
) -> None:
    charts = [
        drawing
        for drawing in drawings(language, width, "light")
        if drawing.facts["kind"] == "gantt"
    ]
    assert len(charts) >= 2  # the synthesis' and theory 3's
    for page, text, facts in charts:
        axis = Axis(facts["ticks"], AXIS[read_setting(text, "axisFormat")])
        wanted = read_tasks(text)
        assert [name["text"] for name in facts["names"]] == [task.name for task in wanted], page
        for task, bar in zip(wanted, facts["bars"], strict=True):
            drawn = (bar["centre"],) * 2 if bar["point"] else (bar["left"], bar["right"])
            for time, place in zip((task.start, task.end), drawn, strict=True):
                assert abs(axis.at(time) - place) < PIXELS, (page, task, time, place)


@EACH
def test_a_tracks_name_stands_beside_its_bars_not_on_them(
    drawings: Drawings, language: str, width: int
) -> None:
    for page, _, facts in drawings(language, width, "light"):
        for section in facts["sections"]:
            assert section["right"] <= min(bar["left"] for bar in facts["bars"]), (page, section)
