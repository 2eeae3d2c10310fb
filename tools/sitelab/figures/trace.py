"""The figure of a recorded step: what each rank computed, and its collectives, on one clock."""

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from sitelab.figures import quantities
from sitelab.figures.shown import Figure, picture
from sitelab.pages.tree import Element
from sitelab.pages.whole_options import keep_options_whole

MEASURED = "docs/measured/step-trace.json"
PHASES = {"forward": "f", "backward": "b", "update": "gradient"}
# A rank's spans of a kind: from, to (µs), and what.
Spans = list[tuple[float, float, str]]


def figure(said: dict[str, str], root: Path) -> Figure:
    """Return the step that was recorded; nobody turns anything in it."""
    place = root / MEASURED
    if not place.is_file():
        return Figure("")  # a workbook of somebody else's
    record = json.loads(place.read_text("utf-8"))
    return Figure(_drawn(record, said))


def share(spans: Spans, end: float) -> float:
    """Return how much of the time to `end` the spans cover; they don't overlap."""
    return sum(b - a for a, b, _ in spans) / end


def both(one: Spans, other: Spans) -> float:
    """Return for how long a span of both runs."""
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b, _ in one for c, d, _ in other)


def last(ranks: list[dict[str, Spans]]) -> float:
    """Return when the last span ends."""
    return max(b for rank in ranks for spans in rank.values() for _, b, _ in spans)


def _drawn(record: dict[str, Any], said: dict[str, str]) -> str:
    ranks, end = record["ranks"], last(record["ranks"])
    rows: list[tuple[str, list[str]]] = []
    for phase in PHASES:
        of = [[s for s in rank["compute"] if s[2] == phase] for rank in ranks]
        rows.append((f"{said['compute']}: {said[phase]}", [_told(share(s, end), end) for s in of]))
    carried = [rank["collectives"] for rank in ranks]
    rows.append((said["under-way"], [_told(share(s, end), end) for s in carried]))
    rows.append((said["count"], [str(len(spans)) for spans in carried]))
    hidden = [both(rank["compute"], rank["collectives"]) / end for rank in ranks]
    rows.append((said["hidden"], [_told(one, end) for one in hidden]))
    told = record["provenance"] | {"step": quantities.time(end / 1e6)}
    command = Element("", {}, [Element("code", {}, [record["command"]])])
    keep_options_whole(command)
    made = escape(said["made"]).format(**told, command=Markup(command.html()))  # noqa: S704
    return picture("trace", said, ranks=ranks, end=end, phases=PHASES, rows=rows, made=made)


def _told(part: float, end: float) -> str:
    return f"{quantities.time(part * end / 1e6)} ({quantities.percent(part)})"
