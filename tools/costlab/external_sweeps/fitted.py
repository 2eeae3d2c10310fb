"""A sweep fitted: its lines, what they are worth, what they say of a size; and their drawing.

How far a fit may be carried beyond what was measured is tried on the sweep itself: one that had
ended earlier would have been fitted to fewer sizes. What that fit says of the sizes it didn't see,
and what they took, is all that the file knows of extrapolation.
"""

from collections.abc import Sequence
from itertools import cycle

import msgspec
import numpy as np

from costlab.external_sweeps.rows import Measured
from costlab.publish.figures.draw_all_reduce import MARKS, by_size, line
from costlab.publish.figures.plotting import LIGHT, figure, svg
from costlab.sections.fit import unseen
from costlab.sections.piecewise import LEAST, Curve, piecewise

LAST = 4  # sizes that are predicted: smaller ones say little about what lies beyond the largest
NOTHING = "nothing in this file says how wrong that is"


class Tried(msgspec.Struct, frozen=True):
    """A prediction of a size that was measured, from the sizes up to `fitted` alone.

    Args:
        fitted: bytes, the largest that the fit saw.
        size: bytes, what it predicted.
        error: predicted/measured - 1.
    """

    fitted: int
    size: int
    error: float

    @property
    def times(self) -> float:
        """How many times the largest size seen."""
        return self.size / self.fitted


def tried(sizes: Sequence[int], seconds: Sequence[float]) -> list[Tried]:
    """Predict each of the last sizes from every shorter sweep that can be fitted."""
    trials = []
    for end in range(2 * LEAST, len(sizes)):
        curve = piecewise(sizes[:end], seconds[:end])
        for place in range(max(end, len(sizes) - LAST), len(sizes)):
            error = curve.predict(sizes[place]) / seconds[place] - 1
            trials.append(Tried(sizes[end - 1], sizes[place], error))
    return trials


def erred(trials: Sequence[Tried], times: float) -> float | None:
    """Return the worst |error| of going that many times beyond, or further than that was tried.

    None where no trial went so far: then the file says nothing of it.
    """
    # A step of a half more or less is the same step: sizes needn't be powers of two.
    comparable = [trial.times for trial in trials if trial.times >= times / 1.5]
    if not comparable:
        return None
    step = min(comparable)
    return max(abs(trial.error) for trial in trials if trial.times <= step * 1.5)


class Line(msgspec.Struct, frozen=True):
    """One piece of a fit: from where (bytes), seconds at no bytes, bytes a second."""

    start: float
    latency: float
    bandwidth: float | None  # None where more bytes cost nothing


class Prediction(msgspec.Struct, frozen=True):
    """What a fit says of a size, and how far that may be trusted.

    Args:
        size: bytes.
        seconds: what it would take.
        beyond: times the largest size measured, or the smallest over it; 1 between them.
        error: share by which as much, or the fit between sizes, was wrong in the sweep itself;
            None where the sweep can't say.
    """

    size: int
    seconds: float
    extrapolation: float
    error: float | None


class Fitted(msgspec.Struct):
    """What `tools/bench fit` says of one sweep; `trials` and `unseen` need six sizes."""

    name: str
    sizes: list[int]
    seconds: list[float]
    lines: list[Line]
    residual: float
    unseen: float | None
    trials: list[Tried]
    predictions: list[Prediction]
    wrong: int


def fit(measured: Measured, sizes_asked: Sequence[int]) -> Fitted:
    """Fit a sweep of three sizes or more, and predict the sizes that are asked for."""
    sizes, seconds = measured.sizes, measured.seconds
    curve = piecewise(sizes, seconds)
    hidden = list(unseen(sizes, seconds).values()) if len(sizes) >= 2 * LEAST else []
    trials = tried(sizes, seconds)
    between = float(np.median(hidden)) if hidden else None
    return Fitted(
        str(measured.key), sizes, seconds, _lines(curve),
        float(np.median(np.abs(curve.residuals))), between, trials,
        [_predicted(curve, sizes, size, trials, between) for size in sizes_asked], measured.wrong,
    )  # fmt: skip


def _lines(curve: Curve) -> list[Line]:
    return [
        Line(
            piece.start or piece.first,
            piece.latency,
            1 / piece.per_byte if piece.per_byte > 0 else None,
        )
        for piece in curve.pieces
    ]


def _predicted(
    curve: Curve, sizes: Sequence[int], size: int, trials: Sequence[Tried], between: float | None
) -> Prediction:
    extrapolation = max(size / sizes[-1], sizes[0] / size, 1.0)
    error = between if extrapolation == 1 else None
    if size > sizes[-1]:  # downwards nothing is tried: there a call costs its latency
        error = erred(trials, extrapolation)
    return Prediction(size, curve.predict(size), extrapolation, error)


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
