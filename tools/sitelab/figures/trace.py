"""The figure of a recorded step: each rank's computation and its collectives, on one clock."""

import itertools
import json
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from sitelab.figures import embed
from sitelab.figures.embed import Figure, render_template
from sitelab.pages.line_breaks import make_options_nonbreaking
from sitelab.pages.tree import Element

MEASURED = "docs/measured/step-trace.json"
PHASES = {"forward": "f", "backward": "b", "update": "u"}
MOST_TICKS = 8  # of the time axis: their labels fit on a narrow screen
# A rank's spans of a kind: start and end in µs, and the name.
Spans = list[tuple[float, float, str]]


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return the recorded step; the figure has no controls."""
    file = root / MEASURED
    if not file.is_file():
        return Figure("")  # another workbook, built with these tools
    record = json.loads(file.read_text("utf-8"))
    return Figure(_render(record, words))


def covered_share(spans: Spans, end: float) -> float:
    """Return the share of the time to `end` that the spans cover; the spans don't overlap."""
    return sum(b - a for a, b, _ in spans) / end


def overlap(spans: Spans, other_spans: Spans) -> float:
    """Return the time during which a span of either list runs."""
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b, _ in spans for c, d, _ in other_spans)


def latest_end(ranks: list[dict[str, Spans]]) -> float:
    """Return when the last span ends."""
    return max(b for rank in ranks for spans in rank.values() for _, b, _ in spans)


def place_ticks(end: float) -> list[tuple[str, float]]:
    """Return the label and the place in percent of each tick from 0 to `end`, which is in µs.

    The ticks are 1, 2 or 5 times a power of ten apart, so close that there are at most MOST_TICKS.
    """
    step = next(
        factor * 10.0**power
        for power in itertools.count()
        for factor in (1, 2, 5)
        if end // (factor * 10**power) < MOST_TICKS
    )
    return [
        (f"{n * step / 1000:g} ms" if n else "0", 100 * n * step / end)
        for n in range(int(end // step) + 1)
    ]


def _render(record: dict[str, Any], words: dict[str, str]) -> str:
    ranks, end = record["ranks"], latest_end(record["ranks"])
    collectives = [rank["collectives"] for rank in ranks]
    parts = {
        f"{words['compute']}: {words[phase]}": [
            [span for span in rank["compute"] if span[2] == phase] for rank in ranks
        ]
        for phase in PHASES
    }
    rows = [
        (name, [_format_share(covered_share(spans, end), end) for spans in by_rank])
        for name, by_rank in (parts | {words["under-way"]: collectives}).items()
    ]
    rows.append((words["count"], [str(len(spans)) for spans in collectives]))
    hidden = [overlap(rank["compute"], rank["collectives"]) / end for rank in ranks]
    rows.append((words["hidden"], [_format_share(share, end) for share in hidden]))
    facts = record["provenance"] | {"step": embed.format_seconds(end / 1e6)}
    command = Element("", {}, [Element("code", {}, [record["command"]])])
    make_options_nonbreaking(command)
    sentence = escape(words["made"]).format(**facts, command=Markup(command.html()))  # noqa: S704
    return render_template(
        "trace", words, ranks=ranks, end=end, ticks=place_ticks(end), phases=PHASES, rows=rows,
        made=sentence,
    )  # fmt: skip


def _format_share(share: float, end: float) -> str:
    return f"{embed.format_seconds(share * end / 1e6)} ({embed.format_percent(share)})"
