"""A result: what one run measured, as one JSON file that outlives the rank that died.

A metric is named by its id; where it comes from is said by `how`, and a modelled or derived value
never passes for a measured one. A section that broke off keeps what it had.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

SCHEMA = 2  # 2: ids say whose code it is, and a metric on which device
How = Literal["measured", "counted", "modelled", "derived"]


class ResultError(Exception):
    """A results file that can't be read or written; says which, why, and what to do."""


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number.

    Args:
        id: dotted name, unique in a result: "tp.h128.slowdown.shardlab.gloo".
        value: in `unit`.
        unit: "s", "B", "B/s", "ratio", "count", "hidden" ….
        how: "measured" by a clock or a counter of the machine, "counted" by the ledger, "derived"
            by arithmetic from measured metrics, "modelled" from a stated model of a part that is
            not here.
        low, high: its spread (from the lower or the tenth to the upper quartile of one launch, or
            from the least to the most of several); None where there is none, as in a count.
        samples: how many observations the value stands on: rounds, of what is timed.
        device: where it was measured, "cpu" or "cuda"; none for what was modelled.
        detail: what else belongs to it, by name.
    """

    id: str
    value: float
    unit: str
    how: How = "measured"
    low: float | None = None
    high: float | None = None
    samples: int = 1
    device: str = ""
    detail: dict[str, str | float | int | bool] = {}

    def on(self, device: str) -> Metric:
        """Return it as measured on a device; what a model says was measured on none."""
        return self if self.how == "modelled" else msgspec.structs.replace(self, device=device)


class Section(msgspec.Struct, kw_only=True):
    """A part of the lab: "collectives", "tp", "fsdp", "pipeline", "counts", "one-gpu".

    Args:
        status: "complete", or "partial" where it broke off, with the reason in `note`.
        seconds: it took.
    """

    status: Literal["complete", "partial"] = "partial"
    note: str = ""
    seconds: float = 0.0
    metrics: list[Metric] = []


class Result(msgspec.Struct, kw_only=True):
    """A run: where, when and how (`provenance`), and its sections by name."""

    schema: int = SCHEMA
    provenance: dict[str, str | float | int | bool | list[str]] = {}
    settings: dict[str, str | int | list[int]] = {}
    sections: dict[str, Section] = {}

    def metrics(self) -> dict[str, Metric]:
        """Every metric by id."""
        return {
            metric.id: metric for section in self.sections.values() for metric in section.metrics
        }


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
        raise ResultError(f"{path} has schema {result.schema}, this bench reads {SCHEMA}")
    if len(result.metrics()) != sum(len(section.metrics) for section in result.sections.values()):
        raise ResultError(f"{path} holds a metric twice")
    return result


def save(result: Result, path: Path) -> None:
    """Write a result whole or not at all.

    Raises:
        ResultError: the folder can't be written, or the disk is full; an older file stays.
    """
    text = msgspec.json.format(msgspec.json.encode(result, enc_hook=_number), indent=1)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            temporary = Path(file.name)
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as fault:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise ResultError(f"{path} can't be written: {fault.strerror or fault}") from None


def _number(value: object) -> float | int:
    """Return a number that is numpy's or torch's as Python's own."""
    item = getattr(value, "item", None)
    if item is None:
        raise NotImplementedError(f"a result holds numbers and text, not {type(value).__name__}")
    return item()  # type: ignore[no-any-return]
