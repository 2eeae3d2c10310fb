"""The figures of the results page, drawn from a result: SVG, in light and in dark.

all-reduce   time against size, over each link, with the pieces of its fit and the plain line
speed-up     two ranks, and one process' threads, against one thread, by hidden size
shares       where a step of two tensor-parallel ranks goes, by hidden size
overlap      one fully sharded step: what rank 0 computes, and what it communicates meanwhile

Each is drawn twice, for a desk and, `-narrow`, for a telephone; the site shows the one that fits.
"""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from costlab.publish import page
from costlab.publish.figures import draw_all_reduce, draw_overlap, draw_tensor_parallel
from costlab.publish.figures.plotting import SHADES, WIDE, Shade, Word, figure, make_narrow, svg
from costlab.record.result import Metric, Result
from costlab.record.words import texts

FOLDER = "figures"
WIDTHS = {"": WIDE, "-narrow": 3.6}  # inches, by the suffix of the file's name
Metrics = Mapping[str, Metric]


class Drawing(NamedTuple):
    """A figure: where it stands in the page, and who draws it; its words are in words.toml."""

    section: str
    draw: Callable[[Any, Shade, Metrics, Word], bool]
    height: float  # inches


FIGURES = {
    "all-reduce": Drawing("collectives", draw_all_reduce.draw, 4.6),
    "speed-up": Drawing("tp", draw_tensor_parallel.draw_speedup, 4.6),
    "shares": Drawing("tp", draw_tensor_parallel.draw_shares, 3.2),
    "overlap": Drawing("fsdp", draw_overlap.draw, 3.4),
}


def write(result: Result, lab: Path) -> list[Path]:
    """Draw what the result has into the lab's figures; what it hasn't is removed there.

    Returns:
        the files written.
    """
    metrics = result.metrics()
    written = []
    for stem in FIGURES:
        for language, shade, suffix in product(page.LANGUAGES, SHADES, WIDTHS):
            path = lab / FOLDER / f"{named(stem, language)}{suffix}-{shade.name}.svg"
            drawn = _drawn(stem, shade, metrics, language, WIDTHS[suffix])
            if drawn:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(drawn, "utf-8")
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written


def named(stem: str, language: str) -> str:
    """Return what a figure's files are called in a language, up to their shade."""
    return stem if language == page.LANGUAGES[0] else f"{stem}-{language}"


def translator(language: str) -> Word:
    """Return what gives a figure its words in a language; a name without any stays as it is."""
    translations = texts("drawn")
    return lambda name: translations[name].of(language) if name in translations else name


def _drawn(stem: str, shade: Shade, metrics: Metrics, language: str, width: float) -> str:
    """Return a figure's SVG, or nothing where the result lacks what it shows."""
    drawing = FIGURES[stem]
    with figure(shade, width=width, height=drawing.height) as (canvas, axes):
        drawn = drawing.draw(axes, shade, metrics, translator(language))
        if drawn and width < WIDE:
            make_narrow(axes)
        return svg(canvas, texts("alternatives")[stem].of(language)) if drawn else ""
