"""Time against bytes as a few straight lines: each piece a latency and a cost per byte.

One line, time = latency + bytes × per-byte, is what textbooks draw. Real links change their
protocol with the size, leave the cache, start to overlap: so the sizes are cut into ranges with a
line each.

- Every line is fitted by relative least squares: what is made small is Σ (predicted/measured - 1)²,
  the weights 1/t². A sweep spans four decades of time, and a plain fit would only see the last.
- Where the ranges are cut is exact, by dynamic programming over all cuts (Bellman, 1961, "On the
  approximation of curves by line segments using dynamic programming").
- How many pieces is judged by leave-one-out: each size in turn is predicted from the others. Of the
  numbers of pieces whose error is within one standard error of the least, the smallest is taken
  (Breiman et al., 1984, section 3.4.3).
- Two neighbouring lines that cross between the last size of one and the first of the next meet
  there; lines that don't are left with a jump, half-way on the logarithmic scale.

Dimension key: N sizes, P pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit  # type: ignore[import-untyped]

CONFIDENCE = 0.95
Floats = npt.NDArray[np.float64]
LEAST = 3  # sizes in a piece: a line through two leaves no residual to judge it by
MOST = 5  # pieces
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Piece:
    """One line, over the measured sizes [first, last] in bytes.

    Args:
        start: where it takes over from the piece before, bytes; 0 for the first.
        latency: seconds at no bytes. Of a later piece it is an intercept, and may be negative.
        per_byte: seconds a byte; not negative.
    """

    start: float
    first: float
    last: float
    latency: float
    per_byte: float


@dataclass(frozen=True)
class Curve:
    """Pieces in ascending order, and what they were fitted to.

    Args:
        sizes: bytes [N], ascending.
        seconds: measured [N].
    """

    pieces: tuple[Piece, ...]
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def predict(self, size: float) -> float:
        """Seconds for that many bytes; beyond the sizes that were fitted it extrapolates."""
        piece = next(piece for piece in reversed(self.pieces) if size >= piece.start)
        return piece.latency + piece.per_byte * size

    @property
    def residuals(self) -> tuple[float, ...]:
        """predicted/measured - 1 at each size fitted [N]."""
        return tuple(
            self.predict(size) / second - 1
            for size, second in zip(self.sizes, self.seconds, strict=True)
        )

    @property
    def jumps(self) -> int:
        """How many neighbouring pieces do not meet."""
        pairs = zip(self.pieces, self.pieces[1:], strict=False)
        return sum(
            abs(_at(earlier, two.start) / _at(two, two.start) - 1) > 1e-6 for earlier, two in pairs
        )


def one_line(sizes: Sequence[float], seconds: Sequence[float], *, relative: bool = True) -> Curve:
    """Fit the textbook's two parameters.

    Args:
        sizes: bytes, ascending.
        seconds: what each took.
        relative: weights 1/t²; False is plain least squares, to show what it does to small sizes.
    """
    size, second = _checked(sizes, seconds, 2)
    if relative:
        latency, per_byte, _ = _Lines(size, second).best(0, len(size))
    else:
        design = np.stack([np.ones_like(size), size / size[-1]], axis=1)
        latency, slope = np.linalg.lstsq(design, second, rcond=None)[0]
        per_byte = slope / size[-1]
    piece = Piece(0.0, float(size[0]), float(size[-1]), float(latency), float(per_byte))
    return Curve((piece,), tuple(size), tuple(second))


def piecewise(
    sizes: Sequence[float], seconds: Sequence[float], *, pieces: int | None = None
) -> Curve:
    """Fit lines over ranges of sizes.

    Args:
        sizes: bytes, ascending, at least 3.
        seconds: what each took.
        pieces: how many; as many as leave-one-out justifies if None.

    Raises:
        ValueError: too few sizes for so many pieces, sizes not ascending, times not positive.
    """
    size, second = _checked(sizes, seconds, LEAST * (pieces or 1))
    count = pieces or _justified(size, second)
    return _joined(size, second, _cut(_Lines(size, second), count)[count])


def _checked(sizes: Sequence[float], seconds: Sequence[float], least: int) -> tuple[Floats, Floats]:
    size, second = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    if len(size) < least or len(size) != len(second):
        raise ValueError(f"{least} sizes or more are needed, each with its time; {len(size)} given")
    if np.any(np.diff(size) <= 0) or np.any(second <= 0):
        raise ValueError("sizes must ascend and every time must be positive")
    return size, second


class _Lines:
    """The best line over any run of sizes, from sums that are taken once.

    With u = 1/t and v = S/t, what is made small is Σ (latency·u + per_byte·v - 1)².
    """

    def __init__(self, size: Floats, second: Floats) -> None:
        u, v = 1 / second, size / second
        self.count = len(size)
        zero = np.zeros((1, 5))
        terms = np.stack([u * u, u * v, v * v, u, v], axis=1)
        self._sums = np.concatenate([zero, np.cumsum(terms, axis=0)])

    def best(self, begin: int, end: int) -> tuple[float, float, float]:
        """(latency, per-byte, squared relative error) over sizes begin … end - 1."""
        uu, uv, vv, u, v = (self._sums[end] - self._sums[begin]).tolist()
        determinant = uu * vv - uv * uv
        per_byte = (uu * v - uv * u) / determinant if determinant > 0 else 0.0
        per_byte = max(per_byte, 0.0)  # more bytes never take less: a falling line is noise
        latency = (u - per_byte * uv) / uu
        return latency, per_byte, max(end - begin - latency * u - per_byte * v, 0.0)


def _cut(lines: _Lines, max_pieces: int) -> dict[int, list[tuple[int, int, float, float]]]:
    """For 1 … most pieces (as many as fit), the best runs: (begin, end, latency, per-byte)."""
    count = lines.count
    line = {(i, j): lines.best(i, j) for i in range(count) for j in range(i + LEAST, count + 1)}
    best: dict[tuple[int, int], tuple[float, int]] = {(0, 0): (0.0, 0)}
    for pieces in range(1, max_pieces + 1):
        for end in range(LEAST * pieces, count + 1):
            best[pieces, end] = min(
                (best[pieces - 1, begin][0] + line[begin, end][2], begin)
                for begin in range(end - LEAST + 1)
                if (pieces - 1, begin) in best
            )
    cuts = {}
    for pieces in range(1, min(max_pieces, count // LEAST) + 1):
        runs, end = [], count
        for remaining in range(pieces, 0, -1):
            begin = best[remaining, end][1]
            runs.append((begin, end, *line[begin, end][:2]))
            end = begin
        cuts[pieces] = runs[::-1]
    return cuts


def _joined(size: Floats, second: Floats, runs: Sequence[tuple[int, int, float, float]]) -> Curve:
    """Runs as pieces, each starting where its line crosses the one before, or at a jump."""
    pieces: list[Piece] = []
    for begin, end, latency, per_byte in runs:
        start = 0.0
        if pieces:
            before, below, above = pieces[-1], size[begin - 1], size[begin]
            start = float(np.sqrt(below * above))
            if before.per_byte != per_byte:
                crossing = (latency - before.latency) / (before.per_byte - per_byte)
                # Rounding may put what meets at a measured size just beyond it.
                met = below * (1 - _ROUNDING) <= crossing <= above * (1 + _ROUNDING)
                start = float(crossing) if met else start
        pieces.append(Piece(start, float(size[begin]), float(size[end - 1]), latency, per_byte))
    return Curve(tuple(pieces), tuple(size), tuple(second))


def _justified(size: Floats, second: Floats) -> int:
    max_pieces = min(MOST, (len(size) - 1) // LEAST)
    if max_pieces < 2:
        return 1
    errors = _left_out(size, second, max_pieces)
    means = errors.mean(axis=1)
    least = int(means.argmin())
    allowed = means[least] + errors[least].std(ddof=1) / np.sqrt(errors.shape[1])
    return int(np.argmax(means <= allowed)) + 1


def _left_out(size: Floats, second: Floats, max_pieces: int) -> Floats:
    """|log(predicted/measured)| of each inner size, from all the others, for 1 … most pieces.

    The first and the last size are never left out: predicting them would be extrapolation.

    Returns:
        [most, N - 2].
    """
    errors = np.empty((max_pieces, len(size) - 2))
    for out in range(1, len(size) - 1):
        rest, times = np.delete(size, out), np.delete(second, out)
        for pieces, runs in _cut(_Lines(rest, times), max_pieces).items():
            predicted = _joined(rest, times, runs).predict(size[out])
            # A line may fall below zero between two pieces: wrong by a factor of a million.
            errors[pieces - 1, out - 1] = abs(np.log(max(predicted / second[out], 1e-6)))
    return errors


def _at(piece: Piece, size: float) -> float:
    return piece.latency + piece.per_byte * size


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
