"""Tensor parallelism by hidden size: the speed-up and its crossover, and where a step goes.

`draw_speedup` has a line for each link, and the speed-up of one process that is given as many
threads as there are ranks. `draw_shares` has a bar for each size: a step's parts.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from costlab.publish.figures.draw_all_reduce import MARKS
from costlab.publish.figures.plotting import Shade, Word, on, rows, spreads, width_factor
from costlab.record.names import Name, Wanted
from costlab.record.quantity import attribute, format_metric
from costlab.record.result import Metric

_POINT: Wanted = {"topic": "tp", "what": ("speedup", "speedup-of-threads"), "ranks": 0}
IDEAL = 2.0
TUTOR = 128  # its hidden size
THREADS = "threads"
Points = list[tuple[int, Metric]]


def lines(metrics: Mapping[str, Metric]) -> dict[str, Points]:
    """Return the points of each line by hidden size: two ranks a link, then one process' threads.

    All are over one process kept to one thread, as each of two ranks is.
    """
    points: dict[str, Points] = defaultdict(list)
    for metric in metrics.values():
        if metric.name.fits(_POINT):
            points[metric.name.link or THREADS].append((metric.name.hidden, metric))
    order = sorted(points, key=lambda line: (line == THREADS, line))
    return {line: sorted(points[line], key=lambda point: point[0]) for line in order}


def draw_speedup(axes: Any, shade: Shade, metrics: Mapping[str, Metric], word: Word) -> bool:
    """Draw a line a link, and one process' threads; tell whether there was any."""
    drawn = lines(metrics)
    if not drawn:
        return False
    every = sorted({hidden for points in drawn.values() for hidden, _ in points})
    axes.axhline(1, color=shade.ink, linewidth=1)
    axes.axhline(IDEAL, color=shade.ink, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.6)
    axes.annotate(
        word("twice"), (every[0], IDEAL), (0, 4),
        textcoords="offset points", fontsize=9, alpha=0.8,
    )  # fmt: skip
    for place, (line, points) in enumerate(drawn.items()):
        colour = shade.color_link(line, place)
        _line(axes, colour, MARKS[place], _named(line, word), points, dashed=line == THREADS)
        crossover = Name("tp", "crossover", code="shardlab", link=line)
        _crossover(axes, shade, colour, metrics.get(crossover.id), word)
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{size:,}" for size in every])
    axes.set_xlabel(word("hidden"))
    devices = sorted(
        {attribute(metric).device for points in drawn.values() for _, metric in points}
    )
    axes.set_ylabel(word("speed-up") + "".join(on(metric, word) for metric in devices))
    axes.set_ylim(0, max(IDEAL * 1.12, axes.get_ylim()[1]))
    if TUTOR in every:
        axes.annotate(
            word("tutor"), (TUTOR, 0), (5, 5), textcoords="offset points", fontsize=9, alpha=0.8,
        )  # fmt: skip
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.legend(loc="lower right")
    return True


def _named(line: str, word: Word) -> str:
    return word("as-many-threads") if line == THREADS else word("two-ranks").format(link=word(line))


def _line(axes: Any, colour: str, mark: str, label: str, points: Points, *, dashed: bool) -> None:
    axes.errorbar(
        [size for size, _ in points], [metric.value for _, metric in points],
        yerr=spreads(metric for _, metric in points), marker=mark,
        linestyle=(0, (5, 2)) if dashed else "-", color=colour, markersize=6, linewidth=1.8,
        elinewidth=1.2, zorder=3, label=label,
    )  # fmt: skip


def _crossover(axes: Any, shade: Shade, colour: str, metric: Metric | None, word: Word) -> None:
    if metric is None:
        return
    axes.plot(
        [metric.value], [1], "o", markersize=9, markerfacecolor=shade.paper,
        markeredgecolor=colour, markeredgewidth=2, zorder=4,
    )  # fmt: skip
    axes.annotate(
        word("crosses").format(size=format_metric(metric)), (metric.value, 1), (8, -16),
        textcoords="offset points", color=colour, fontsize=9.5,
    )  # fmt: skip


_SHARE: Wanted = {"topic": "tp", "what": "share", "code": "shardlab", "link": "gloo", "ranks": 0}
PARTS = ("matmul", "launch", "latency", "volume", "other")
COLORS = ("own", "slate", "ochre", "sent", "rest")
LETTERS = 0.06  # of a step, on a desk: a smaller part has no room for its number


def shares(metrics: Mapping[str, Metric]) -> dict[int, dict[str, Metric]]:
    """Return each part's share of a step, by hidden size."""
    by_hidden: dict[int, dict[str, Metric]] = {}
    for metric in metrics.values():
        if metric.name.fits(_SHARE) and metric.name.of in PARTS:
            by_hidden.setdefault(metric.name.hidden, {})[metric.name.of] = metric
    return dict(sorted(by_hidden.items()))


def draw_shares(axes: Any, shade: Shade, metrics: Mapping[str, Metric], word: Word) -> bool:
    """Draw a bar a width; tell whether there was any."""
    by_hidden = shares(metrics)
    if not by_hidden:
        return False
    for place, parts in enumerate(by_hidden.values()):
        bottom = 0.0
        for color, part in zip(COLORS, PARTS, strict=True):
            width = max(parts[part].value, 0.0) if part in parts else 0.0
            axes.barh(
                place, width, left=bottom, height=0.72, color=shade.parts[color][1],
                edgecolor=shade.parts[color][0], linewidth=1.1,
                label=word(f"share-{part}") if place == 0 else None,
            )  # fmt: skip
            if width >= LETTERS * width_factor(axes):
                axes.text(
                    bottom + width / 2, place, f"{width:.0%}".replace("%", " %"),
                    ha="center", va="center", fontsize=9,
                )  # fmt: skip
            bottom += width
    rows(axes, range(len(by_hidden)), [f"{hidden:,}" for hidden in by_hidden])
    axes.invert_yaxis()
    axes.set_ylabel(word("hidden"))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}".replace("%", " %"))
    example = next(iter(next(iter(by_hidden.values())).values()))
    axes.set_xlabel(word("share-of-step") + on(attribute(example).device, word))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(PARTS), fontsize=9)
    return True
