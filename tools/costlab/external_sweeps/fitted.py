"""A sweep fitted: its lines, what they are worth, and what they say of a size that is asked for."""

from collections.abc import Sequence

import msgspec
import numpy as np

from costlab.external_sweeps.extrapolation import Tried, erred, tried
from costlab.external_sweeps.rows import Measured
from costlab.sections.fit.fit import unseen
from costlab.sections.fit.piecewise import LEAST, Curve, piecewise

NOTHING = "nothing in this file says how wrong that is"


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
