"""Where a step of two tensor-parallel ranks goes, by hidden size: its parts, one on the other."""

from collections.abc import Mapping
from typing import Any

from costlab.publish.figures.plotting import Shade, Word, on, rows, width_factor
from costlab.record.attribution import attribute
from costlab.record.names import Wanted
from costlab.record.result import Metric

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


def draw(axes: Any, shade: Shade, metrics: Mapping[str, Metric], word: Word) -> bool:
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
