"""One fully sharded step of rank 0 as it happened: compute above, gathers and reductions below.

Collectives are in flight together: a gather ahead of need beside the reduction of the unit before.
So each kind has lanes of its own, as many as it takes that none lies over another.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from costlab.publish.figures.plotting import Shade, Word, on, rows, width_factor
from costlab.record.quantity import attribute
from costlab.record.result import Metric

_TOPIC = "timeline"
TRACKS = ("compute", "communication")
GROUPS = ("compute", "gather", "reduce")
# Of forward, backward, optimizer, gather and reduce; a reduction sends partial sums.
COLORS = ("own", "slate", "ochre", "sent", "partial")


class Bar(NamedTuple):
    """Something on a track of rank 0, in seconds."""

    track: str
    name: str
    start: float
    length: float


def spans(metrics: Mapping[str, Metric]) -> list[Bar]:
    """Return rank 0's spans, from the metrics that `timeline` keeps them as."""
    bars = []
    for metric in metrics.values():
        rank, _, track = str(metric.detail.get("track", "")).removeprefix("rank ").partition(" ")
        if metric.name.topic == _TOPIC and rank == "0" and track in TRACKS:
            start = float(metric.detail["start"])
            bars.append(Bar(track, str(metric.detail["name"]), start, metric.value))
    return bars


def kind(span: Bar) -> int:
    """Return which colour: forward, backward, optimizer, gather, reduce."""
    if span.track == "communication":
        return 3 if span.name.startswith("gather") else 4
    return 1 if span.name.endswith("backward") else 2 if span.name == "AdamW" else 0


def group(span: Bar) -> str:
    """Return which of GROUPS a span belongs to."""
    return "compute" if span.track == "compute" else GROUPS[kind(span) - 2]


def lanes(bars: Iterable[Bar]) -> dict[str, list[list[Bar]]]:
    """Return each group's lanes, from the first down; spans of a lane follow one another."""
    placed: dict[str, list[list[Bar]]] = {name: [] for name in GROUPS}
    for span in sorted(bars, key=lambda span: span.start):
        lanes_of_group = placed[group(span)]
        free = [lane for lane in lanes_of_group if lane[-1].start + lane[-1].length <= span.start]
        if free:
            free[0].append(span)
        else:
            lanes_of_group.append([span])
    return {name: lanes_of_group for name, lanes_of_group in placed.items() if lanes_of_group}


def draw(axes: Any, shade: Shade, metrics: Mapping[str, Metric], word: Word) -> bool:
    """Draw the lanes, groups apart; tell whether there was a timeline."""
    bars = spans(metrics)
    if not bars:
        return False
    start = min(span.start for span in bars)
    length = max(span.start + span.length for span in bars) - start
    top, marks = 0.0, []
    for name, group_lanes in lanes(bars).items():
        for depth, lane in enumerate(group_lanes):
            for span in lane:
                _bar(axes, shade, span._replace(start=span.start - start), top - depth, length)
        marks.append((top - (len(group_lanes) - 1) / 2, name))
        top -= len(group_lanes) + 0.3
    rows(axes, [place for place, _ in marks], [word(name) for _, name in marks])
    axes.set_xlim(0, length * 1e3)
    axes.set_ylim(top + 0.6, 1.5)
    devices = (
        attribute(metric).device for metric in metrics.values() if metric.name.topic == _TOPIC
    )
    axes.set_xlabel(word("milliseconds") + on(next(filter(None, devices), ""), word))
    _legend(axes, shade, word)
    return True


def _bar(axes: Any, shade: Shade, span: Bar, place: float, length: float) -> None:
    colour, soft = shade.parts[COLORS[kind(span)]]
    start, width = span.start * 1e3, span.length * 1e3
    axes.barh(place, width, left=start, height=0.76, color=soft, edgecolor=colour, linewidth=1.1)
    label = _label(span, span.length / length / width_factor(axes))
    axes.text(start + width / 2, place, label, ha="center", va="center", fontsize=8.5)


def _label(span: Bar, share: float) -> str:
    """Return what fits into a span: its name, its number, or nothing."""
    number = "".join(part for part in span.name if part.isdigit())
    short = span.name.replace("block ", "").replace("forward", "fwd").replace("backward", "bwd")
    if share > 0.012 * len(short):
        return short
    return number if share > 0.016 else ""


def _legend(axes: Any, shade: Shade, word: Word) -> None:
    from matplotlib.patches import Patch

    names = ("forward", "backward", "optimizer", "gather", "reduce")
    handles = [
        Patch(facecolor=soft, edgecolor=colour, label=word(name))
        for name, (colour, soft) in zip(names, (shade.parts[c] for c in COLORS), strict=True)
    ]
    axes.legend(handles=handles, loc="upper center", ncols=len(names), fontsize=9)
