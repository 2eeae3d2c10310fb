"""An all-reduce's time against its size: what was measured, the fit in pieces, the plain one."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from costlab.publish.figures.plotting import Shade, Word, spreads
from costlab.record.names import Wanted
from costlab.record.quantity import attribute, format_value
from costlab.record.result import Metric
from costlab.sections.piecewise import Curve, one_line, piecewise

_POINT: Wanted = {"topic": "collective", "operation": "all_reduce", "mode": "blocking"}
MARKS = "os^D"
APART = 8  # nearer to one another, on a logarithmic axis, their names touch
LEAST = 3  # sizes: a line through fewer is no fit


def draw(axes: Any, shade: Shade, metrics: Mapping[str, Metric], word: Word) -> bool:
    """Draw each link at the fewest ranks that were measured; tell whether there was any."""
    links = series(metrics)
    for place, (link, points) in enumerate(links.items()):
        sizes, seconds = [size for size, _ in points], [metric.value for _, metric in points]
        colour = shade.color_link(link, place)
        axes.errorbar(
            sizes, seconds, yerr=spreads(metric for _, metric in points), fmt=MARKS[place],
            color=colour, markersize=5, elinewidth=1, capsize=0, zorder=3,
            label=named(link, points[0][1], word),
        )  # fmt: skip
        if len(points) >= LEAST:
            _fits(axes, colour, sizes, seconds, word if place == len(links) - 1 else None)
    if not links:
        return False
    axes.set_xlabel(word("bytes"))
    axes.set_ylabel(word("time"))
    by_size(axes, (size for points in links.values() for size, _ in points))
    handles, labels = axes.get_legend_handles_labels()
    fits = {word("in-pieces"), word("one-line")}
    order = sorted(range(len(labels)), key=lambda place: labels[place] in fits)
    axes.legend([handles[i] for i in order], [labels[i] for i in order], loc="upper left")
    return True


def named(link: str, metric: Metric, word: Word) -> str:
    """Return what a link's line is called: "gloo, CPU"."""
    device = attribute(metric).device
    return f"{word(link)}, {device}" if device else word(link)


def by_size(axes: Any, sizes: Iterable[int]) -> None:
    """Let the axes be of bytes and seconds, both logarithmic."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(marked(sorted(set(sizes))))
    axes.xaxis.set_major_formatter(lambda size, _: format_value(size, "B"))
    axes.yaxis.set_major_formatter(lambda second, _: format_value(second, "s"))


def line(axes: Any, curve: Curve, **style: Any) -> None:
    """Draw a fit, from the least size that it was made from to the largest."""
    fine = np.geomspace(curve.sizes[0], curve.sizes[-1], 400)
    predicted = np.array([curve.predict(float(size)) for size in fine])
    predicted[predicted <= 0] = np.nan  # a latency below nothing has no place on this axis
    axes.plot(fine, predicted, **style)


def marked(sizes: list[int]) -> list[int]:
    """Return which sizes the axis names: the largest, and from there each at most an APART-th."""
    chosen: list[int] = []
    for size in reversed(sizes):
        if not chosen or size * APART <= chosen[-1]:
            chosen.append(size)
    return chosen


def series(metrics: Mapping[str, Metric]) -> dict[str, list[tuple[int, Metric]]]:
    """Return each link's points, by size; of several worlds the smallest."""
    points: dict[str, dict[int, list[tuple[int, Metric]]]] = defaultdict(lambda: defaultdict(list))
    for metric in metrics.values():
        name = metric.name
        if name.fits(_POINT):
            points[name.link][name.ranks].append((name.size, metric))
    return {
        link: sorted(worlds[min(worlds)], key=lambda point: point[0])
        for link, worlds in sorted(points.items())
    }


def _fits(
    axes: Any, colour: str, sizes: list[int], seconds: list[float], word: Word | None
) -> None:
    for curve, dash, weight, label in (
        (piecewise(sizes, seconds), "-", 1.6, "in-pieces"),
        (one_line(sizes, seconds, relative=False), (0, (1.2, 2.2)), 1.4, "one-line"),
    ):
        line(axes, curve, linestyle=dash, linewidth=weight, color=colour, alpha=0.9)
        if word:  # the dashes mean the same for every link: said once
            axes.plot([], [], linestyle=dash, linewidth=weight, color="grey", label=word(label))
