"""How two implementations are compared on a machine whose speed drifts.

Contestants run side by side, as `costlab.contestants.rounds` says. Here is what stands around:

- a launch starts fresh processes, one per rank, one thread each, over gloo;
- a launch yields the median of each one's rounds, and of their ratios to a named base;
- three launches or more show how far a ratio repeats.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from costlab.contestants import rounds
from costlab.contestants.rounds import Build, Rounds
from costlab.record.result import Load
from costlab.record.statistic import middle, paired
from shardlab.comm import World
from tests.shardlab.benchmark.provenance import provenance


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
        return [middle(launch[name]).value for launch in self.launches]

    def ratios(self, name: str, base: str) -> list[float]:
        """Ratio of `name` to `base` (below 1: faster), taken within each round, of each launch."""
        return [paired(launch[name], launch[base]).value for launch in self.launches]

    def ratio(self, name: str, base: str) -> float:
        """The middle launch's ratio: what a goal is judged on."""
        return statistics.median(self.ratios(name, base))


def compare(
    build: Build, cases: Iterable[Mapping[str, Any]], *, ranks: int, plan: Plan | None = None
) -> list[Case]:
    """Measure each case's contestants; `build` must be a module-level function.

    Raises:
        RuntimeError: a rank failed, or the contestants' losses differ.
    """
    plan = plan or Plan()
    results = [Case(dict(case)) for case in cases]
    for launch in range(plan.launches):
        times = _launch(build, [case.settings for case in results], ranks, plan, plan.seed + launch)
        for case, (measured, load) in zip(results, times, strict=True):
            case.launches.append(measured)
            case.load += load
    return results


def record(what: str, base: str, cases: list[Case], plan: Plan) -> dict[str, Any]:
    """The JSON of a comparison: every step's seconds, and what it was measured on."""
    return {
        "schema": 1,
        "what": what,
        "base": base,
        "provenance": provenance(),
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


def _launch(
    build: Build, cases: list[dict[str, Any]], ranks: int, plan: Plan, seed: int
) -> list[tuple[dict[str, list[float]], Load]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(
                target=_work,
                args=(theirs, f"{folder}/store", rank, ranks, build, cases, plan, seed),
                daemon=True,
            )
            for rank in range(ranks)
        ]
        for worker in workers:
            worker.start()
        theirs.close()
        try:
            times: list[tuple[dict[str, list[float]], Load]] = ours.recv()
            for worker in workers:
                worker.join()
        except EOFError:
            raise RuntimeError("a rank failed; its traceback stands above") from None
        finally:
            for worker in workers:
                worker.kill()
    return times


def _work(
    pipe: Any, store: str, rank: int, ranks: int, build: Build, cases: list[dict[str, Any]],
    plan: Plan, seed: int,
) -> None:  # fmt: skip
    torch.set_num_threads(1)
    shared = dist.FileStore(store, ranks)  # type: ignore[attr-defined]
    place = {"store": shared, "rank": rank, "size": ranks}
    with World.join(backend="gloo", link="fast-gloo", **place, timeout=600) as world:
        order = random.Random(seed)
        times = []
        for case in cases:
            with build(world, **case) as steps:
                times.append(rounds.measure(world, steps, plan.rounds, order))
            del steps
            gc.collect()
        if rank == 0:
            pipe.send(times)
        world.whole.barrier()
