"""Where tensor parallelism begins to pay: the hidden size at which the speed-up crosses 1.

Its interval is a percentile bootstrap's (B. Efron and R. Tibshirani, An Introduction to the
Bootstrap, chapter 13): of each size its launches are drawn anew, and of each launch its rounds,
each a pair of steps side by side; the crossing of what they make is found as that of the true
ones; between the 2.5th and the 97.5th percentile of such crossings lie 95 % of them. One that lies
beyond the sizes measured counts as at the last of them.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.record.statistics import percentile
from costlab.sections.metrics import derived

DRAWS, SEED = 2000, 35


def crossover(name: Name, speedups: Mapping[int, Metric]) -> Iterator[Metric]:
    """Where the speed-up crosses 1 for good, interpolated between the logarithms of the sizes.

    Args:
        name: of the crossover: whose, over which link, how many ranks.
        speedups: by hidden size, with the series that they are the medians of; without those the
            crossing has no interval.
    """
    sizes = sorted(speedups)
    logs = [math.log(speedups[hidden].value) for hidden in sizes]
    place = crossing(sizes, logs)
    words = "faster everywhere" if place == sizes[0] else ""
    words = "slower everywhere" if place == sizes[-1] else words
    yield derived(
        name.but(of="exists"), float(not words), "count", found=words or "crosses",
        least=sizes[0], most=sizes[-1],
    )  # fmt: skip
    if words:
        return
    below = max(hidden for hidden in sizes if hidden <= place)
    crossings = sum(
        first < 0 <= second or second < 0 <= first for first, second in itertools.pairwise(logs)
    )
    places = drawn(sizes, [speedups[hidden].series for hidden in sizes])
    spread = None
    if places:  # as far as the crossing itself, of which the drawn ones may all lie on one side
        spread = min(percentile(places, 2.5), place), max(percentile(places, 97.5), place)
    yield derived(
        name, place, "hidden", samples=sum(speedups[hidden].samples for hidden in sizes),
        spread=spread, below=below, above=sizes[sizes.index(below) + 1], crossings=crossings,
        beyond=sum(first in (sizes[0], sizes[-1]) for first in places) / max(1, len(places)),
    )  # fmt: skip


def crossing(sizes: Sequence[int], logs: Sequence[float]) -> float:
    """Return where the logarithm of the speed-up rises through 0 for good.

    The least size where it lies above 0 everywhere, the last where it ends below.
    """
    slow = [place for place, log in enumerate(logs) if log < 0]
    if not slow:
        return sizes[0]
    if slow[-1] == len(sizes) - 1:
        return sizes[-1]
    below, above = sizes[slow[-1]], sizes[slow[-1] + 1]
    behind, after = logs[slow[-1]], logs[slow[-1] + 1]
    return math.exp(math.log(below) + math.log(above / below) * -behind / (after - behind))


def drawn(sizes: Sequence[int], series: Sequence[list[list[float]]]) -> list[float]:
    """Return the crossings of launches and rounds drawn anew; none where there are no rounds."""
    if not all(series):
        return []
    draw = np.random.default_rng(SEED)
    logs = [_medians(draw, [np.log(launch) for launch in launches]) for launches in series]
    return [crossing(sizes, some) for some in np.stack(logs, axis=1).tolist()]


def _medians(
    draw: np.random.Generator, launches: Sequence[npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """Return `DRAWS` medians over drawn launches of the medians of drawn rounds."""
    count = len(launches)
    # By launch, by draw, by place among the drawn launches.
    middles = np.stack(
        [np.median(draw.choice(launch, (DRAWS, count, len(launch))), axis=2) for launch in launches]
    )
    which = draw.integers(count, size=(DRAWS, count))
    some = middles[which, np.arange(DRAWS)[:, None], np.arange(count)]
    return np.asarray(np.median(some, axis=1))
