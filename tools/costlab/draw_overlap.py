"""One fully sharded step of rank 0 as it happened: compute on one track, collectives below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from costlab.plotting import Shade
from costlab.result import Metric

_PREFIX = "timeline."
TRACKS = ("compute", "communication")
SHORT = {"forward": "fwd", "backward": "bwd", "gather": "gather", "reduce": "reduce"}


class Span(NamedTuple):
    """Something on a track of rank 0, in seconds."""

    track: str
    name: str
    start: float
    length: float


def spans(metrics: Mapping[str, Metric]) -> list[Span]:
    """Return rank 0's spans, from the metrics that `costlab.timeline` keeps them as."""
    found = []
    for name, metric in metrics.items():
        rank, _, track = str(metric.detail.get("track", "")).removeprefix("rank ").partition(" ")
        if name.startswith(_PREFIX) and rank == "0" and track in TRACKS:
            start = float(metric.detail["start"])
            found.append(Span(track, str(metric.detail["name"]), start, metric.value))
    return found


def kind(span: Span) -> int:
    """Return which colour: forward, backward, optimizer, gather, reduce."""
    if span.track == "communication":
        return 3 if span.name.startswith("gather") else 4
    return 1 if span.name.endswith("backward") else 2 if span.name == "AdamW" else 0


def draw(axes: Any, shade: Shade, metrics: Mapping[str, Metric]) -> bool:
    """Draw the two tracks; tell whether there was a timeline."""
    found = spans(metrics)
    if not found:
        return False
    start = min(span.start for span in found)
    end = max(span.start + span.length for span in found) - start
    for span in found:
        place = TRACKS.index(span.track)
        colour, soft = shade.series[kind(span)], shade.soft[kind(span)]
        left, width = (span.start - start) * 1e3, span.length * 1e3
        axes.barh(
            1 - place, width, left=left, height=0.62, color=soft, edgecolor=colour, linewidth=1.1
        )
        label = _label(span, span.length / end)
        axes.text(left + width / 2, 1 - place, label, ha="center", va="center", fontsize=8.5)
    axes.set_yticks([1, 0], TRACKS)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, end * 1e3)
    axes.set_ylim(-0.5, 1.9)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("milliseconds")
    _legend(axes, shade)
    return True


def _label(span: Span, share: float) -> str:
    """Return what fits into a span: its name, its number, or nothing."""
    number = "".join(part for part in span.name if part.isdigit())
    short = span.name.replace("block ", "").replace("forward", "fwd").replace("backward", "bwd")
    if share > 0.012 * len(short):
        return short
    return number if share > 0.016 else ""


def _legend(axes: Any, shade: Shade) -> None:
    from matplotlib.patches import Patch

    names = ("forward", "backward", "optimizer", "gather", "reduce")
    handles = [
        Patch(facecolor=shade.soft[i], edgecolor=shade.series[i], label=name)
        for i, name in enumerate(names)
    ]
    axes.legend(handles=handles, loc="upper center", ncols=len(names), fontsize=9)
