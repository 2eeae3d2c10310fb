"""The parts of the lab: where each one's code lies, found only when it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from costlab.record.settings import Settings

# In the order of a whole run: what is derived comes after what it is derived from.
MODULES = {
    "collectives": "costlab.sections.collectives.collectives",
    "fit": "costlab.sections.fit.fit",
    "tp": "costlab.sections.tensor_parallel.tensor_parallel",
    "fsdp": "costlab.sections.fully_sharded.fully_sharded",
    "pipeline": "costlab.sections.pipeline",
    "one-gpu": "costlab.sections.one_gpu",
    "counts": "costlab.sections.counts.counts",
}


class SectionError(Exception):
    """A section that isn't there, or can't run as asked; says why and what to do."""


def load(name: str) -> Any:
    """Return the module of a section.

    It holds `measure(world, settings)`, a generator that every rank iterates, or
    `derive(metrics)`, which makes metrics of all those measured before, its own among them, or
    both; and may hold `RANKS`
    (a number or several), `LAUNCHES` and `DEVICE` (or several), or functions of the settings that
    return them.

    Raises:
        SectionError: no such section, or its code or what it needs is not installed.
    """
    if name not in MODULES:
        raise SectionError(f"no section {name!r}; there are {', '.join(MODULES)}")
    try:
        return importlib.import_module(MODULES[name])
    except ModuleNotFoundError as fault:
        if fault.name == MODULES[name]:
            raise SectionError(f"section {name!r} is not in this checkout") from None
        raise SectionError(f"section {name!r} needs {fault.name}: run `make bench-env`") from None


def ranks(module: Any, settings: Settings) -> tuple[int, ...]:
    """Return the world sizes that a section measures, one launch after another."""
    wanted = _of(module, "RANKS", settings, settings.ranks)
    return tuple(wanted) if isinstance(wanted, Sequence) else (wanted,)


def devices(module: Any, settings: Settings) -> tuple[str, ...]:
    """Return the devices that a section measures on: the run's own, unless it says otherwise."""
    wanted = _of(module, "DEVICE", settings, settings.device)
    return (wanted,) if isinstance(wanted, str) else tuple(wanted)


def launches(module: Any, settings: Settings) -> int:
    """Return how many sets of fresh processes a section measures in."""
    return int(_of(module, "LAUNCHES", settings, 1))


def _of(module: Any, name: str, settings: Settings, default: Any) -> Any:
    value = getattr(module, name, default)
    return value(settings) if callable(value) else value
