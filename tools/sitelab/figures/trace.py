"""The figure of a recorded step: what each rank computed, and its collectives, on one clock."""

import json
from html import escape
from pathlib import Path
from typing import Any

from sitelab.figures import quantities
from sitelab.figures.shown import Figure

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
    return Figure(_drawn(record["ranks"], said) + _table(record, said))


def share(spans: Spans, end: float) -> float:
    """Return how much of the time to `end` the spans cover; they don't overlap."""
    return sum(b - a for a, b, _ in spans) / end


def both(one: Spans, other: Spans) -> float:
    """Return for how long a span of both runs."""
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b, _ in one for c, d, _ in other)


def last(ranks: list[dict[str, Spans]]) -> float:
    """Return when the last span ends."""
    return max(b for rank in ranks for spans in rank.values() for _, b, _ in spans)


def _drawn(ranks: list[dict[str, Spans]], said: dict[str, str]) -> str:
    end = last(ranks)
    tracks = ""
    for number, rank in enumerate(ranks):
        for kind in ("compute", "collectives"):
            boxes = "".join(
                f'<span class="play-box play-{PHASES.get(what, "activation")}" '
                f'style="left:{100 * a / end:.3f}%;width:{100 * (b - a) / end:.3f}%"></span>'
                for a, b, what in rank[kind]
            )
            name = f"{escape(said['rank'])} {number}, {escape(said[kind])}"
            track = f'<span class="play-track">{boxes}</span>'
            tracks += f'<span class="play-stage">{name}</span>{track}'
    keys = {**PHASES, "collective": "activation"}
    legend = "".join(
        f'<li><span class="play-key play-{key}"></span>{escape(said[what])}</li>'
        for what, key in keys.items()
    )
    return (
        f'<div class="play-scroll" tabindex="0" role="img" aria-label="{escape(said["picture"])}">'
        f'<div class="play-tracks play-recorded">{tracks}</div></div>'
        f'<ul class="play-legend">{legend}</ul>'
    )


def _table(record: dict[str, Any], said: dict[str, str]) -> str:
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
    heads = "".join(f'<th scope="col">{escape(said["rank"])} {n}</th>' for n in range(len(ranks)))
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f'<td class="play-bytes">{cell}</td>' for cell in cells)
        + "</tr>"
        for name, cells in rows
    )
    told = record["provenance"] | {"step": quantities.time(end / 1e6)}
    facts = {name: escape(str(fact)) for name, fact in told.items()}
    facts["command"] = f"<code>{escape(record['command'])}</code>"
    made = escape(said["made"]).format(**facts)
    return (
        f'<div class="play-scroll" tabindex="0" role="group" aria-label="{escape(said["table"])}">'
        f"<table><thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="play-made">{made}</p>'
    )


def _told(part: float, end: float) -> str:
    return f"{quantities.time(part * end / 1e6)} ({quantities.percent(part)})"
