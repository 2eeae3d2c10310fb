"""How far a fit may be carried beyond what was measured: tried on the sweep itself.

A sweep that had ended earlier would have been fitted to fewer sizes; what that fit says of the
sizes it didn't see, and what they took, is all that the file knows of extrapolation.
"""

from collections.abc import Sequence

import msgspec

from costlab.sections.fit.piecewise import LEAST, piecewise

LAST = 4  # sizes that are predicted: smaller ones say little about what lies beyond the largest


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
