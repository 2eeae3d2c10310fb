"""Others' sweeps with their lines, in one picture."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from costlab.foreign.fitted import Fitted
from costlab.publish.figures.draw_all_reduce import MARKS, marked
from costlab.publish.figures.plotting import LIGHT, figure, svg
from costlab.record.quantity import written
from costlab.sections.fit.piecewise import piecewise


def drawn(sweeps: Sequence[Fitted]) -> str:
    """Return an SVG: time against bytes, points measured, lines fitted."""
    with figure(LIGHT, width=7.2, height=4.6) as (made, axes):
        for one, colour, mark in zip(sweeps, cycle(LIGHT.series), cycle(MARKS), strict=False):
            axes.plot(one.sizes, one.seconds, mark, color=colour, markersize=4, label=one.name)
            fine = np.geomspace(one.sizes[0], one.sizes[-1], 400)
            curve = piecewise(one.sizes, one.seconds)
            predicted = np.array([curve.predict(float(size)) for size in fine])
            predicted[predicted <= 0] = np.nan
            axes.plot(fine, predicted, color=colour, linewidth=1.4)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(marked(sorted({size for one in sweeps for size in one.sizes})))
        axes.xaxis.set_major_formatter(lambda size, _: written(size, "B"))
        axes.yaxis.set_major_formatter(lambda second, _: written(second, "s"))
        axes.set_xlabel("bytes of the tensor")
        axes.set_ylabel("time of one call")
        axes.legend(loc="upper left")
        return svg(made, "time of a collective against its size, measured and fitted")
