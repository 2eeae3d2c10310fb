"""Others' sweeps with their lines, in one picture."""

from collections.abc import Sequence
from itertools import cycle

from costlab.external_sweeps.fitted import Fitted
from costlab.publish.figures.draw_all_reduce import MARKS, by_size, line
from costlab.publish.figures.plotting import LIGHT, figure, svg
from costlab.sections.fit.piecewise import piecewise


def drawn(sweeps: Sequence[Fitted]) -> str:
    """Return an SVG: time against bytes, points measured, lines fitted."""
    with figure(LIGHT, width=7.2, height=4.6) as (canvas, axes):
        for sweep, colour, mark in zip(sweeps, cycle(LIGHT.series), cycle(MARKS), strict=False):
            axes.plot(
                sweep.sizes, sweep.seconds, mark, color=colour, markersize=4, label=sweep.name
            )
            line(axes, piecewise(sweep.sizes, sweep.seconds), color=colour, linewidth=1.4)
        by_size(axes, (size for sweep in sweeps for size in sweep.sizes))
        axes.set_xlabel("bytes of the tensor")
        axes.set_ylabel("time of one call")
        axes.legend(loc="upper left")
        return svg(canvas, "time of a collective against its size, measured and fitted")
