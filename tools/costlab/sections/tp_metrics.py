"""What the rounds of the tensor-parallel step say: times, ratios, parts, and where it pays.

The crossover is the hidden size at which the speed-up crosses 1. Its interval is a percentile
bootstrap's (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, chapter 13): of each size
its launches are drawn anew, and of each launch its rounds, each a pair of steps side by side; the
crossing of what they make is found as that of the true ones; between the 2.5th and the 97.5th
percentile of such crossings lie 95 % of them. One that lies beyond the sizes measured counts as at
the last of them.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from costlab.implementations import tutor
from costlab.record.names import Name
from costlab.record.result import How, Metric
from costlab.record.statistics import percentile
from costlab.sections.metrics import Detail, by_rounds, derived, ratio, timed
from costlab.sections.sweep_check import Calls

PARTS = ("matmul", "latency", "volume", "launch", "other")
MEASURED = ("matmul", "latency", "communication", "launch")
ALONE = ("one", "one-all-cores")
# Other libraries' contestants, and what their ids say.
LIBRARIES = {"megatron-core": "megatron-core", "dtensor": "torch-dtensor"}
Times = Mapping[str, Sequence[float]]


def metrics(
    hidden: int, times: Times, ranks: int, *, backend: str = "gloo", calls: Calls | None = None
) -> Iterator[Metric]:
    """What one size's times say; ids tell how many ranks there were, but for two."""
    base = Name("tp", hidden=hidden, code="shardlab", ranks=0 if ranks == 2 else ranks)
    about: Detail = {
        "ranks": ranks, "batch": tutor.BATCH, "sequence": tutor.SEQUENCE, "layers": tutor.LAYERS,
    }  # fmt: skip
    links = [link for link in (backend, "shared-memory") if link in times]
    steps = {name: base.but(of=name) for name in ALONE} | {
        link: base.but(link=link) for link in links
    }
    for name, step in steps.items():
        if name in times:
            yield timed(step.but(what="step"), times[name], **about)
    for name, code in LIBRARIES.items():
        if name in times:
            yield timed(base.but(what="step", code=code, link=backend), times[name], **about)
            which = base.but(what="ratio", over=code, link=backend)
            yield ratio(which, times[backend], times[name])
    yield from _speedups(base, times, links, about)
    if "matmul" in times:
        ours = base.but(link=backend)
        yield from breakdown(ours, times, times[backend], ranks=ranks, calls=calls or {})


def _speedups(base: Name, times: Times, links: Sequence[str], about: Detail) -> Iterator[Metric]:
    """Two ranks over one process: kept to one thread as each of them, and given them all."""
    single, every = (times.get(name) for name in ALONE)
    if every and single:
        yield ratio(base.but(what="speedup-of-threads"), single, every, **about)
    for link in links:
        ours = base.but(link=link)
        if single:
            yield ratio(ours.but(what="speedup"), single, times[link], **about)
            yield ratio(ours.but(what="slowdown"), times[link], single, **about)
        if every:
            yield ratio(ours.but(what="speedup-over-threads"), every, times[link], **about)


def breakdown(
    ours: Name, times: Times, step: Sequence[float], *, ranks: int, calls: Calls
) -> Iterator[Metric]:
    """The parts of the step over the backend's link, round by round, and their shares of it.

    Args:
        ours: whose and of what size.
        times: of the parts.
        step: the whole step's times, of the same rounds.
        ranks: how many took part.
        calls: the step's collectives.
    """
    measured_parts = {part: times[part] for part in MEASURED}
    measured_parts["volume"] = _less(measured_parts["communication"], measured_parts["latency"])
    measured_parts["other"] = _less(
        step, *(measured_parts[part] for part in ("matmul", "communication", "launch"))
    )
    for part, seconds in measured_parts.items():
        how: How = "measured" if part in MEASURED else "derived"
        detail: Detail = dict(calls) if part == "communication" else {}
        which = ours.but(what="part", of=part)
        yield by_rounds(which, seconds, "s", how=how, ranks=ranks, **detail)
    for part in PARTS:
        shares = [a / b for a, b in zip(measured_parts[part], step, strict=True)]
        yield by_rounds(ours.but(what="share", of=part), shares, "share")
    cut = zip(times["matmul-whole"], times["matmul"], strict=True)
    efficiency = [whole / (ranks * seconds) for whole, seconds in cut]
    yield by_rounds(ours.but(what="cut-efficiency"), efficiency, "share", ranks=ranks)


def _less(whole: Sequence[float], *parts: Sequence[float]) -> list[float]:
    """What is left of each round's time."""
    return [
        total - sum(parts_of_round) for total, *parts_of_round in zip(whole, *parts, strict=True)
    ]


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
