"""A result: what one run measured, as one JSON file that outlives the rank that died.

A metric is named by its id; where it comes from is said by `how`, and a modelled or derived value
never passes for a measured one. A section that broke off keeps what it had.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

import click
import msgspec

from costlab.record.names import Name, parse

SCHEMA = 4  # a part of a whole has a unit of its own, "share"
How = Literal["measured", "counted", "modelled", "derived"]


class ResultError(click.ClickException):
    """A results file that can't be read or written; says which, why, and what to do."""


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number.

    Args:
        id: what it is of, unique in a result: made by `names`, "tp.h128.slowdown.shardlab.gloo".
        value: in `unit`.
        unit: "s", "B", "B/s", "count", "hidden" …; "ratio" is how many times, "share" a part of a
            whole or an error, read as per cent.
        how: "measured" by a clock or a counter of the machine, "counted" by the ledger, "derived"
            by arithmetic from measured metrics, "modelled" from a stated model of a part that is
            not here.
        low, high: its spread, which holds the value: an interval of the median of what was
            observed (`statistic`), of a line's parameter, of a crossing; None where there is none,
            as in a count.
        samples: how many observations the value stands on.
        series: those observations, launch by launch; written beside the result (`samples.py`).
        device: where it was measured, "cpu" or "cuda"; none for what was modelled.
        detail: what else belongs to it, by name.

    Raises:
        ValueError: the value lies outside its spread.
    """

    id: str
    value: float
    unit: str
    how: How = "measured"
    low: float | None = None
    high: float | None = None
    samples: int = 1
    series: list[list[float]] = []
    device: str = ""
    detail: dict[str, str | float | int | bool] = {}

    def __post_init__(self) -> None:
        """Refuse a spread that doesn't hold the value: one of the two is of something else."""
        if self.low is None and self.high is None:
            return
        if self.low is None or self.high is None or not self.low <= self.value <= self.high:
            raise ValueError(
                f"{self.id} is {self.value:g}, which its own spread, {self.low} to {self.high}, "
                f"does not hold: take value and spread from one statistic (`statistics.median_ci`)"
            )

    @property
    def name(self) -> Name:
        """What it is of, in fields."""
        return parse(self.id)

    def on(self, device: str) -> Metric:
        """Return it as measured on a device; what a model says was measured on none."""
        return self if self.how == "modelled" else msgspec.structs.replace(self, device=device)


# On disk two fields keep the names that schema 1 gave them.
_STORED = {"core_seconds": "there", "worst_share": "most"}


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_STORED):
    """What else ran while some rounds were measured (`noise.py`).

    Args:
        rounds: that were measured; of them
        dropped: since something else used the cores,
        spoiled: in the same way, but kept, since too few others were left,
        unwatched: on a system that doesn't say what else runs.
        core_seconds: seconds of cores in all, of the rounds that were watched; of them
        foreign: used by something else. The share of the worst round that was not clean is
        worst_share: 0 where all were.
        waited: seconds in which some task waited for a core, the ranks' own among them.
        missing_rounds: wanted, and not measured when the run's time was up.
        missing_launches: in the same way.
    """

    rounds: int = 0
    dropped: int = 0
    spoiled: int = 0
    unwatched: int = 0
    core_seconds: float = 0.0
    foreign: float = 0.0
    worst_share: float = 0.0
    waited: float = 0.0
    missing_rounds: int = 0
    missing_launches: int = 0

    @property
    def cut_short(self) -> bool:
        """Whether the run's time was up before all of it was measured."""
        return bool(self.missing_rounds or self.missing_launches)

    def __add__(self, second: Load) -> Load:
        """Both together."""
        both = [
            (name, getattr(self, name), getattr(second, name)) for name in self.__struct_fields__
        ]
        return Load(**{name: max(a, b) if name == "worst_share" else a + b for name, a, b in both})


# What a measurement yields: a number, a word on how far it is, or what else ran.
Item = Metric | str | Load


class Launch(msgspec.Struct, kw_only=True):
    """A finished launch of a section that isn't complete; its series are with the section's."""

    metrics: list[Metric] = []
    load: Load | None = None


class Section(msgspec.Struct, kw_only=True):
    """A part of the lab: "collectives", "tp", "fsdp", "pipeline", "counts", "one-gpu".

    Args:
        status: "complete"; "cut" where the run's time was up, as `load` says; or "partial" where
            it broke off, with the reason in `note`.
        seconds: it took.
        load: what else ran while its rounds were measured, where it has any.
        launches: those that are finished, unless it is complete; a run that goes on has them.
    """

    status: Literal["complete", "cut", "partial"] = "partial"
    note: str = ""
    seconds: float = 0.0
    load: Load | None = None
    metrics: list[Metric] = []
    launches: list[Launch] | msgspec.UnsetType = msgspec.UNSET

    def finished(self) -> list[Launch]:
        """Return the finished launches, each metric with its own series."""
        series = {metric.id: iter(metric.series) for metric in self.metrics}
        return [
            Launch(
                load=launch.load,
                metrics=[
                    msgspec.structs.replace(metric, series=list(islice(series[metric.id], 1)))
                    for metric in launch.metrics
                ],
            )
            for launch in self.launches or ()
        ]


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run: where, when and how (`provenance`), and its sections by name.

    Other fields are another file's: without this any JSON object would be a run of nothing.
    """

    schema: int = SCHEMA
    provenance: dict[str, str | float | int | bool | list[str]] = {}
    settings: dict[str, str | int | float | list[int | str]] = {}
    sections: dict[str, Section] = {}

    def metrics(self) -> dict[str, Metric]:
        """Every metric by id."""
        return {
            metric.id: metric for section in self.sections.values() for metric in section.metrics
        }

    def bare(self) -> Result:
        """Return it without the series."""
        return self.with_series({})

    def with_series(self, series: Mapping[str, list[list[float]]]) -> Result:
        """Return it with these series, by metric, and no others."""
        replace = msgspec.structs.replace
        sections = {
            name: replace(
                part,
                metrics=[
                    replace(metric, series=series.get(metric.id, [])) for metric in part.metrics
                ],
            )
            for name, part in self.sections.items()
        }
        return replace(self, sections=sections)


def load(path: Path) -> Result:
    """Read a result.

    Raises:
        ResultError: missing, cut short, of another schema, or holding a metric twice.
    """
    try:
        result = msgspec.json.decode(path.read_bytes(), type=Result)
    except OSError as fault:
        raise ResultError(f"{path}: {fault.strerror or fault}") from None
    except msgspec.DecodeError as fault:
        raise ResultError(
            f"{path} is not a result of this bench ({fault}); if a run was cut short while it was "
            f"written by other means, measure again with tools/bench"
        ) from None
    if result.schema != SCHEMA:
        raise ResultError(
            f"{path} has schema {result.schema}, this bench reads {SCHEMA}: measure again"
        )
    if len(result.metrics()) != sum(len(section.metrics) for section in result.sections.values()):
        raise ResultError(f"{path} holds a metric twice")
    return result


def save(result: Result, path: Path) -> None:
    """Write a result whole or not at all, but for the series.

    Raises:
        ResultError: the folder can't be written, or the disk is full; an older file stays.
    """
    text = msgspec.json.format(msgspec.json.encode(result.bare(), enc_hook=_number), indent=1)
    write_whole(path, text + b"\n")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that a reader sees all of or not; who may read it, the umask says.

    Raises:
        ResultError: the folder can't be written, or the disk is full; an older file stays.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.unlink(missing_ok=True)
        with scratch.open("xb") as file:  # not a temporary file, which is nobody else's to read
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as fault:
        raise ResultError(f"{path} can't be written: {fault.strerror or fault}") from None
    finally:
        with contextlib.suppress(OSError):  # what has been said already is the cause
            scratch.unlink(missing_ok=True)


def _number(value: object) -> float | int:
    """Return a number that is numpy's or torch's as Python's own."""
    item = getattr(value, "item", None)
    if item is None:
        raise NotImplementedError(f"a result holds numbers and text, not {type(value).__name__}")
    return item()  # type: ignore[no-any-return]
