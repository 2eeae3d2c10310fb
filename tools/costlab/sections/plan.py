"""What a section is, and those of the lab: each one's code is found only when it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from costlab.record.options import Settings
from costlab.record.result import Item, Metric

if TYPE_CHECKING:
    from shardlab.comm import World

# In the order of a whole run: what is derived comes after what it is derived from.
MODULES = {
    "one-gpu": "costlab.sections.one_gpu",
    "collectives": "costlab.sections.collectives.collectives",
    "fit": "costlab.sections.fit",
    "tp": "costlab.sections.tensor_parallel",
    "fsdp": "costlab.sections.fully_sharded.fully_sharded",
    "pipeline": "costlab.sections.pipeline",
    "counts": "costlab.sections.counts.counts",
}
# Seconds that each takes on two quiet cores (docs/reference/bench.md): by these a run shares out
# its time and estimates its end. One GPU's were never timed alone.
SECONDS = {
    "quick": {"one-gpu": 30, "collectives": 67, "tp": 121, "fsdp": 45, "pipeline": 26, "counts": 7},
    "full": {
        "one-gpu": 60, "collectives": 462, "tp": 357, "fsdp": 237, "pipeline": 62, "counts": 13,
    },
}  # fmt: skip
MINUTES = {"quick": 10.0, "full": 40.0}  # a run's budget, unless another is given


class SectionError(click.ClickException):
    """A section that isn't there, or can't run as asked; says why and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Plan:
    """How a section comes by its metrics; its module's `PLAN`.

    Args:
        measure: what every rank iterates, metrics and words on how it gets on.
        derive: makes metrics of all those measured before, its own among them.
        ranks: the world sizes to measure in, one launch after another.
        devices: those to measure on.
        launches: how many sets of fresh processes to measure in.
    """

    measure: Callable[[World, Settings], Iterator[Item]] | None = None
    derive: Callable[[Mapping[str, Metric]], Iterable[Metric]] | None = None
    ranks: Callable[[Settings], tuple[int, ...]] = lambda settings: (settings.ranks,)
    devices: Callable[[Settings], tuple[str, ...]] = lambda settings: (settings.device,)
    launches: Callable[[Settings], int] = lambda _: 1


def load(name: str) -> Plan:
    """Return a section's plan.

    Raises:
        SectionError: no such section, or its code or what it needs is not installed.
    """
    if name.startswith("kernels."):
        from costlab.sections.kernels import cases  # which are made of plans

        return cases()[name.removeprefix("kernels.")].plan
    if name not in MODULES:
        raise SectionError(f"no section {name!r}; there are {', '.join(MODULES)}")
    try:
        plan: Plan = importlib.import_module(MODULES[name]).PLAN
    except ModuleNotFoundError as fault:
        if fault.name == MODULES[name]:
            raise SectionError(f"section {name!r} is not in this checkout") from None
        raise SectionError(f"section {name!r} needs {fault.name}: run `make bench-env`") from None
    return plan
