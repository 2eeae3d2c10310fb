"""Tensor parallelism's speed-up against the hidden size, over each link, and the crossover."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from costlab.draw_all_reduce import MARKS, NAMES
from costlab.plotting import Shade
from costlab.quantity import shown
from costlab.result import Metric

_POINT = re.compile(r"tp\.h(\d+)\.speedup\.([\w-]+)")
IDEAL = 2.0
TUTOR = 128  # its hidden size


def draw(axes: Any, shade: Shade, metrics: Mapping[str, Metric]) -> bool:
    """Draw a line a link; tell whether there was any."""
    links: dict[str, list[tuple[int, Metric]]] = defaultdict(list)
    for name, metric in metrics.items():
        if match := _POINT.fullmatch(name):
            links[match[2]].append((int(match[1]), metric))
    if not links:
        return False
    every = sorted({hidden for points in links.values() for hidden, _ in points})
    axes.axhline(1, color=shade.ink, linewidth=1)
    axes.axhline(IDEAL, color=shade.ink, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.6)
    axes.annotate(
        "twice as fast: nothing but compute", (every[0], IDEAL), (0, 4),
        textcoords="offset points", fontsize=9, alpha=0.8,
    )  # fmt: skip
    for place, (link, points) in enumerate(sorted(links.items())):
        points.sort(key=lambda point: point[0])
        hidden = [size for size, _ in points]
        values = np.array([one.value for _, one in points])
        low = np.array([one.low if one.low is not None else one.value for _, one in points])
        high = np.array([one.high if one.high is not None else one.value for _, one in points])
        colour = shade.series[place]
        axes.errorbar(
            hidden, values, yerr=[np.maximum(values - low, 0), np.maximum(high - values, 0)],
            fmt=f"-{MARKS[place]}", color=colour, markersize=6, linewidth=1.8, elinewidth=1.2,
            label=NAMES.get(link, link), zorder=3,
        )  # fmt: skip
        _crossover(axes, shade, colour, metrics.get(f"tp.crossover.{link}"))
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{size:,}" for size in every])
    axes.set_xlabel("hidden size")
    axes.set_ylabel("speed-up of two ranks over one")
    axes.set_ylim(0, max(IDEAL * 1.12, axes.get_ylim()[1]))
    if TUTOR in every:
        axes.annotate(
            "the grammar tutor", (TUTOR, 0), (5, 5), textcoords="offset points", fontsize=9,
            alpha=0.8,
        )  # fmt: skip
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.legend(loc="lower right")
    return True


def _crossover(axes: Any, shade: Shade, colour: str, metric: Metric | None) -> None:
    if metric is None:
        return
    axes.plot(
        [metric.value], [1], "o", markersize=9, markerfacecolor=shade.paper,
        markeredgecolor=colour, markeredgewidth=2, zorder=4,
    )  # fmt: skip
    axes.annotate(
        f"crosses at {shown(metric)}", (metric.value, 1), (8, -16),
        textcoords="offset points", color=colour, fontsize=9.5,
    )  # fmt: skip
