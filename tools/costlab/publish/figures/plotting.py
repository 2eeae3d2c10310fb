"""How figures look, in light and in dark: colours, lines, and an SVG that is the same every time.

Colours are Okabe and Ito's, told apart by everybody; what they distinguish is also said by a
marker, a dash or a label. Text stays text, in the reader's own sans-serif.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from costlab.record.result import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE = 7.2  # inches: of a figure on a desk
_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_FONT = re.compile(r"(font(?:-family)?: ?[^;\"]*?)'DejaVu Sans'[^;\"]*")


@dataclass(frozen=True)
class Shade:
    """The colours of one background.

    Attributes:
        links: the colour of each link that has one everywhere (meanings.css of the site).
        parts: the edge and the fill of a step's parts: "own" work of a rank, "sent", "partial"
            sums, and three colours without a meaning.
    """

    name: str
    paper: str
    ink: str
    faint: str
    series: tuple[str, ...]
    links: dict[str, str]
    parts: dict[str, tuple[str, str]]

    def color_link(self, link: str, place: int) -> str:
        """Return the colour of a link, or that of the `place` of its line in the plot."""
        others = (self.series[2], self.series[4], self.parts["slate"][0])
        return self.links.get(link, others[place % len(others)])


LIGHT = Shade(
    "light", "#ffffff", "#22262e", "#d5d9e0",
    ("#0072b2", "#d55e00", "#009e73", "#7a5195", "#996f00"),
    {"gloo": "#0072b2", "shared-memory": "#5c7a00"},
    {"own": ("#0f7c86", "#dbeff1"), "sent": ("#a8184f", "#f8e3ea"),
     "partial": ("#7a5195", "#ece4f2"), "slate": ("#5b6675", "#e4e8ee"),
     "ochre": ("#996f00", "#efe4c4"), "rest": ("#8a93a0", "#ffffff")},
)  # fmt: skip
DARK = Shade(
    "dark", "#1f2129", "#e4e7ee", "#414654",
    ("#56b4e9", "#f0863a", "#2fc79a", "#c79be0", "#e6c34a"),
    {"gloo": "#56b4e9", "shared-memory": "#b3cc4f"},
    {"own": ("#4fb8c2", "#153a42"), "sent": ("#f0789f", "#45202f"),
     "partial": ("#c79be0", "#372646"), "slate": ("#a3afbf", "#333c49"),
     "ochre": ("#e6c34a", "#524719"), "rest": ("#8a93a0", "#1f2129")},
)  # fmt: skip
SHADES = (LIGHT, DARK)
SHORT = 16  # letters: two such names of a legend stand side by side in a narrow figure
MARKED = 5  # places on a narrow figure's logarithmic axis


@contextmanager
def figure(shade: Shade, *, width: float, height: float) -> Iterator[tuple[Figure, Any]]:
    """Give a figure with one pair of axes, in inches, styled; closed at the end."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "svg.hashsalt": "shardbook", "svg.fonttype": "none", "font.size": 10.5,
        "font.family": "DejaVu Sans", "figure.facecolor": shade.paper,
        "savefig.facecolor": shade.paper, "axes.facecolor": shade.paper,
        "axes.edgecolor": shade.faint, "axes.labelcolor": shade.ink, "text.color": shade.ink,
        "xtick.color": shade.ink, "ytick.color": shade.ink, "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True, "grid.color": shade.faint, "grid.linewidth": 0.6, "grid.alpha": 0.7,
        "axes.axisbelow": True, "xtick.minor.size": 0, "ytick.minor.size": 0,
        "xtick.major.size": 3, "ytick.major.size": 3, "legend.frameon": False,
    }  # fmt: skip
    with mpl.rc_context(style):
        canvas, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
        try:
            yield canvas, axes
        finally:
            pyplot.close(canvas)


def svg(canvas: Figure, title: str) -> str:
    """Return a figure as SVG: no date, ids from a fixed salt, a title for who can't see it."""
    stream = StringIO()
    canvas.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = _FONT.sub(rf"\g<1>{_FAMILY}", stream.getvalue())
    return re.sub(r"(<svg [^>]*)>", rf'\1 role="img" aria-label="{title}">', text, count=1)


Word = Callable[[str], str]  # a word of the figures, in the reader's language


def spreads(metrics: Iterable[Metric]) -> tuple[list[float], list[float]]:
    """Return how far each metric's spread reaches below its value, and above it."""
    ends = [
        (metric.value - metric.low, metric.high - metric.value)
        if metric.low is not None and metric.high is not None
        else (0.0, 0.0)
        for metric in metrics
    ]
    return [below for below, _ in ends], [above for _, above in ends]


def rows(axes: Any, places: Sequence[float], names: Sequence[str]) -> None:
    """Let the axis down be of named rows, with no line of its own."""
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def width_factor(axes: Any) -> float:
    """Return how much more of its axes' width a letter takes than in a figure for a desk."""
    return WIDE / float(axes.figure.get_figwidth())


def make_narrow(axes: Any) -> None:
    """Put the legend above the axes, where a narrow figure has room for it; mark fewer places."""
    legend = axes.get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    plotted = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    handles = [plotted.get(*pair) for pair in zip(names, legend.legend_handles, strict=True)]
    columns = 1 if max(map(len, names)) > SHORT else 2
    axes.legend(
        handles, names, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=9
    )
    ticks = axes.get_xticks()
    if axes.get_xscale() == "log" and len(ticks) > MARKED:
        axes.set_xticks(ticks[::-2])
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_size(9.5)


def on(device: str, word: Word) -> str:
    """Say on which device, behind what an axis shows; nothing of no device."""
    return word("on").format(device=device) if device else ""
