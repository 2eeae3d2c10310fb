"""The figures of the results page, drawn from a result: SVG, in light and in dark.

all-reduce   time against size, over each link, with the pieces of its fit and the plain line
speed-up     two ranks, and one process' threads, against one thread, by hidden size
overlap      one fully sharded step: what rank 0 computes, and what it communicates meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from costlab import draw_all_reduce, draw_overlap, draw_speedup
from costlab.claims import Words
from costlab.plotting import SHADES, Shade, figure, svg
from costlab.result import Metric, Result

FOLDER = "figures"
Metrics = Mapping[str, Metric]


class Drawing(msgspec.Struct, frozen=True):
    """A figure: where it stands in the page, what is said of it, and who draws it."""

    section: str
    alternative: Words
    caption: Words
    draw: Callable[[Any, Shade, Metrics], bool]
    height: float = 4.6


FIGURES = {
    "all-reduce": Drawing(
        "collectives",
        Words(
            "Time of an all-reduce against its size, on logarithmic axes, with its fits",
            "Tiempo de un all-reduce según su tamaño, en ejes logarítmicos, con sus ajustes",
        ),
        Words(
            "Points are measured. Solid: the fit by relative least squares, in as many pieces as "
            "the points justify. Dotted: one latency and one bandwidth by plain least squares, "
            "which sees the largest sizes alone and misses the small ones.",
            "Los puntos están medidos. Línea continua: el ajuste por mínimos cuadrados relativos, "
            "con tantos tramos como justifican los puntos. De puntos: una latencia y un ancho de "
            "banda por mínimos cuadrados sin más, que solo ven los tamaños mayores y yerran en los "
            "pequeños.",
        ),
        draw_all_reduce.draw,
    ),
    "speed-up": Drawing(
        "tp",
        Words(
            "Speed-up of two tensor-parallel ranks, and of one process on as many threads, over "
            "one process on one thread, against the hidden size",
            "Aceleración de dos ranks con paralelismo tensorial, y de un proceso con otros tantos "
            "hilos, frente a un proceso con un hilo, según hidden",
        ),
        Words(
            "Above 1 two ranks of shardlab are faster than one process kept to one thread, as "
            "each of them is. Dashed: what that one process gains from as many threads; where it "
            "lies above the ranks, cutting doesn't pay on this machine. Bars are the spread.",
            "Por encima de 1, dos ranks de shardlab son más rápidos que un proceso limitado a un "
            "hilo, como lo está cada uno. A trazos: lo que ese proceso gana con otros tantos "
            "hilos; donde queda por encima de los ranks, cortar no compensa en esta máquina. Las "
            "barras son la dispersión.",
        ),
        draw_speedup.draw,
    ),
    "overlap": Drawing(
        "fsdp",
        Words(
            "One fully sharded step of rank 0: compute above, communication below, over time",
            "Un paso todo fragmentado del rank 0: arriba el cómputo, abajo la comunicación",
        ),
        Words(
            "One step of shardlab's mini-FSDP as it happened, at hidden 512. Numbers are "
            "blocks. Communication below compute is hidden; below a gap it costs time.",
            "Un paso del mini-FSDP de shardlab tal como ocurrió, con hidden 512. Los números son "
            "bloques. La comunicación bajo cómputo queda oculta; bajo un hueco cuesta tiempo.",
        ),
        draw_overlap.draw,
        height=3.4,
    ),
}


def write(result: Result, lab: Path) -> list[Path]:
    """Draw what the result has into the lab's figures; what it hasn't is removed there.

    Returns:
        the files written.
    """
    metrics = result.metrics()
    written = []
    for stem, one in FIGURES.items():
        for shade in SHADES:
            path = lab / FOLDER / f"{stem}-{shade.name}.svg"
            drawn = _drawn(one, shade, metrics)
            if drawn:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(drawn, "utf-8")
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written


def _drawn(one: Drawing, shade: Shade, metrics: Metrics) -> str:
    """Return a figure's SVG, or nothing where the result lacks what it shows."""
    with figure(shade, width=7.2, height=one.height) as (made, axes):
        return svg(made, one.alternative.en) if one.draw(axes, shade, metrics) else ""
