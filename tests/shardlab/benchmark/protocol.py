"""How two implementations are compared on a machine whose speed drifts.

Contestants run side by side, as `costlab.implementations.rounds` says. Here is what stands around:

- a launch is the bench's own: fresh processes, one per rank, one thread each, over gloo;
- a launch yields the median of each one's rounds, and of their ratios to a named base;
- three launches or more show how far a ratio repeats.
"""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import msgspec

from costlab.implementations import rounds
from costlab.implementations.rounds import Build, Rounds
from costlab.record.provenance import provenance
from costlab.record.result import Item, Load, Metric
from costlab.record.settings import Settings
from costlab.record.statistics import median_ci, paired_ratio_ci
from costlab.run import launch
from shardlab.comm import World


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Args:
        launches: fresh sets of processes.
        seconds: of measuring per case and launch; the number of rounds follows from it,
        least: but is at least this,
        most: and at most this.
        warmup: untimed rounds.
        tolerance: relative, between the contestants' first losses.
    """

    launches: int = 3
    seconds: float = 6.0
    least: int = 15
    most: int = 100
    warmup: int = 3
    tolerance: float = 1e-4
    seed: int = 35

    @property
    def rounds(self) -> Rounds:
        """Of one case, in one launch."""
        return Rounds(self.seconds, self.least, self.most, self.warmup, self.tolerance)


QUICK = Plan(launches=1, seconds=2.0, least=3, warmup=1)


@dataclass
class Case:
    """One case of a comparison: `launches[i][name]` are the seconds of its steps in launch i.

    `load` is what else ran meanwhile.
    """

    settings: dict[str, Any]
    launches: list[dict[str, list[float]]] = field(default_factory=list)
    load: Load = field(default_factory=Load)

    def typical(self, name: str) -> list[float]:
        """Seconds a step, the median of each launch's rounds."""
        return [median_ci(launch[name]).value for launch in self.launches]

    def ratios(self, name: str, base: str) -> list[float]:
        """Ratio of `name` to `base` (below 1: faster), taken within each round, of each launch."""
        return [paired_ratio_ci(launch[name], launch[base]).value for launch in self.launches]

    def spread(self, name: str) -> float:
        """Return the worst launch's 90th percentile of `name`, as a multiple of its median."""
        return max(
            statistics.quantiles(launch[name], n=10)[-1] / statistics.median(launch[name])
            for launch in self.launches
        )

    def ratio(self, name: str, base: str) -> float:
        """The middle launch's ratio: what a goal is judged on."""
        return statistics.median(self.ratios(name, base))


def compare(
    build: Build, cases: Iterable[Mapping[str, Any]], *, ranks: int, plan: Plan | None = None
) -> list[Case]:
    """Measure each case's contestants; `build` must be a module-level function.

    Raises:
        LaunchError: a rank failed, or the contestants' losses differ.
    """
    plan = plan or Plan()
    results = [Case(dict(case)) for case in cases]
    measure = partial(_measure, build, [case.settings for case in results], plan)
    for number in range(plan.launches):
        heard: list[str | Load] = []
        for case in results:
            case.launches.append({})
        for metric in launch.run(
            measure, Settings(seed=plan.seed + number), ranks=ranks, timeout=600,
            on_progress=heard.append,
        ):  # fmt: skip
            place, _, name = metric.id.partition(" ")
            results[int(place)].launches[-1][name] = metric.series[0]
        loads = [progress for progress in heard if isinstance(progress, Load)]
        for case, load in zip(results, loads, strict=True):
            case.load += load
    return results


def _measure(
    build: Build, cases: list[dict[str, Any]], plan: Plan, world: World, settings: Settings
) -> Iterator[Item]:
    """Measure one case after another, on every rank: a metric a contestant, its rounds in it."""
    order = random.Random(settings.seed)
    for place, case in enumerate(cases):
        with build(world, **case) as steps:
            times = yield from rounds.measuring(world, steps, plan.rounds, order)
        for name, seconds in times.items():
            yield Metric(id=f"{place} {name}", value=0, unit="s", series=[seconds])
        del steps
        gc.collect()


def record(what: str, base: str, cases: list[Case], plan: Plan) -> dict[str, Any]:
    """The JSON of a comparison: every step's seconds, and what it was measured on."""
    return {
        "schema": 1,
        "what": what,
        "base": base,
        "provenance": provenance(Settings(), [], ranks=None) | {"command": "make benchmark"},
        "plan": asdict(plan),
        "cases": [
            {
                "settings": case.settings,
                "load": msgspec.to_builtins(case.load),
                "launches": case.launches,
            }
            for case in cases
        ],
    }
