"""A step's collectives run alone, beside what the section "collectives" would have them take.

The sweep times single calls of torch's functions, each begun at a barrier, in buffers that the last
few calls have used. A step's own collectives are run in the midst of rounds: before them ran a
step, or its products, and left other things in the caches. So the two need not agree; the page
says where they don't.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from costlab.record.result import Metric
from costlab.record.words import say
from costlab.sections.fit import Sweep, sweeps
from costlab.sections.metrics import derived
from shardlab.proofs.ledger import Entry

# How often a step calls a collective, by its name and bytes: {"all_reduce.262144": 18}.
Calls = dict[str, int]
_CALL = re.compile(r"(?P<op>[a-z_]+)\.(?P<bytes>\d+)")


def calls(entries: Iterable[Entry]) -> Calls:
    """Count a step's collectives by name and bytes."""
    return dict(Counter(f"{entry.op}.{entry.payload}" for entry in entries))


def derive(metrics: Mapping[str, Metric], section: str) -> Iterator[Metric]:
    """`….sweep.communication.…`, of it `latency` and `volume`, beside every one measured."""
    swept = sweeps(metrics, "median")
    for metric in _alone(metrics, section):
        link = metric.name.link
        ranks = int(metric.detail.get("ranks", 2))
        calls_by_name = {
            name: int(times) for name, times in metric.detail.items() if _CALL.fullmatch(name)
        }
        whole = _sum(swept, link, ranks, calls_by_name)
        least = _sum(swept, link, ranks, calls_by_name, empty=True)
        if not calls_by_name or whole is None or least is None:
            continue
        for what, value in {
            "communication": whole, "latency": least, "volume": whole - least,
        }.items():  # fmt: skip
            name = metric.name.but(what="sweep", of=what)
            yield derived(name, value, "s", calls=sum(calls_by_name.values())).on(metric.device)


def _alone(metrics: Mapping[str, Metric], section: str) -> list[Metric]:
    """Return what the collectives of a section's steps take, run alone."""
    return [
        metric for metric in metrics.values()
        if metric.name.fits({"topic": section, "what": "communication"})
        or metric.name.fits({"topic": section, "what": "part", "of": "communication"})
    ]  # fmt: skip


def _sum(
    swept: Mapping[str, Sweep], link: str, ranks: int, calls_by_name: Calls, *, empty: bool = False
) -> float | None:
    """What the calls take by the sweep, or would at its least size; None where it doesn't say."""
    total = 0.0
    for name, times in calls_by_name.items():
        op, _, size = name.partition(".")
        sweep = swept.get(f"{link}.{op}.n{ranks}")
        if sweep is None or int(size) > sweep.sizes[-1]:
            return None
        # On the straight line between the neighbours of a size; below the least, its time.
        total += times * float(np.interp(0 if empty else int(size), sweep.sizes, sweep.seconds))
    return total


def describe(metrics: Mapping[str, Metric], section: str, language: str) -> str:
    """Say in a sentence where measured and swept lie apart; nothing where nothing was swept."""
    ratios: dict[int, float] = {}
    compared = False
    for metric in _alone(metrics, section):
        sweep = metrics.get(metric.name.but(what="sweep", of="communication").id)
        if sweep is None:
            continue
        compared = True
        ends = [end for end in (metric.low, metric.value, metric.high) if end is not None]
        if not min(ends) <= sweep.value <= max(ends):
            ratios[metric.name.hidden] = metric.value / sweep.value
    if not ratios:
        return say("sweep.agree", language) if compared else ""
    least, greatest = (f"{end(ratios.values()):.2f}" for end in (min, max))
    to = say("sweep.to", language).format(least=least, most=greatest)
    return say("sweep.apart", language).format(
        sizes=", ".join(map(str, sorted(ratios))), times=least if least == greatest else to,
        bench=say("sweep.bench", language),
    )  # fmt: skip
