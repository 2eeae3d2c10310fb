"""How far a fitted line is known: confidence intervals of its latency and its cost per byte."""

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

from costlab.sections.fit.piecewise import Curve

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Confidence intervals of a line's two parameters, (low, high) each."""

    latency: tuple[float, float]
    per_byte: tuple[float, float]


def interval(curve: Curve, piece: int) -> Interval:
    """Intervals at 95 % of a piece's latency and cost per byte, given where the pieces are cut.

    From the covariance of relative least squares, with the variance of all pieces' residuals taken
    together, and Student's distribution for the sizes that are left after the parameters.

    Infinite where no sizes are left.
    """
    line = curve.pieces[piece]
    size, second = np.asarray(curve.sizes), np.asarray(curve.seconds)
    freedom = len(size) - 3 * len(curve.pieces) + 1  # two of each line, and each cut
    if freedom < 1:
        return Interval((-np.inf, np.inf), (-np.inf, np.inf))
    variance = np.square(curve.residuals).sum() / freedom
    within = (size >= line.first) & (size <= line.last)
    scale = line.last
    design = np.stack([1 / second[within], size[within] / scale / second[within]], axis=1)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    reach = errors * stdtrit(freedom, (1 + CONFIDENCE) / 2) / np.array([1.0, scale])
    return Interval(
        (line.latency - float(reach[0]), line.latency + float(reach[0])),
        (line.per_byte - float(reach[1]), line.per_byte + float(reach[1])),
    )
