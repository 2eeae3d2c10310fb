"""A case: one training step by several implementations, measured row by row of a table.

The cases are in cases.toml. A case is a section of a result, `kernels.NAME`. It has two kinds of
metrics, of each launch the medians of its rounds: the seconds of each contestant's step, and the
ratio of each step to the first contestant's, taken within each round.
"""

from __future__ import annotations

import gc
import pkgutil
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from costlab.record.names import Name
from costlab.record.options import Settings
from costlab.record.result import Item, Metric
from costlab.record.words import Words
from costlab.sections.metrics import ratio, timed
from costlab.sections.plan import Plan

if TYPE_CHECKING:
    from costlab.implementations.rounds import Rounds
    from shardlab.comm import World

LAUNCHES = 3
QUICK = {"seconds": 2, "least": 3, "warmup": 1}
Row = int | str


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One contestant.

    Args:
        contestant: its name in what the case's `build` gives.
        code, link: what its metrics' ids say.
        en, es: the column's title; the Spanish one only if it differs.
    """

    contestant: str
    code: str
    en: str
    es: str = ""
    link: str = ""

    def title(self, language: str) -> str:
        """Return the title in a language."""
        return self.es or self.en if language == "es" else self.en


class Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most so many times another contestant's step, in some rows or in all."""

    contestant: str
    over: str
    most: float
    rows: tuple[Row, ...] = ()


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One case.

    Args:
        about: one line for `--list`.
        build: "module:function" that gives the contestants, on every rank.
        setting: the argument of `build` whose value is a row; its title is `row`.
        rows: the values; a quick run measures `quick`, or only the first.
        columns: the contestants; ratios are to the first.
        settings: further arguments of `build`.
        rounds: fields of `Rounds` that differ from the defaults.
        rounds_of: the same of some rows, by row.
        goals: what a full run is judged by.
        published: whether it is a table of the page.
    """

    about: str
    build: str
    setting: str
    row: Words
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    quick: tuple[Row, ...] = ()
    ranks: int = 2
    settings: dict[str, Any] = {}
    rounds: dict[str, int | float] = {}
    rounds_of: dict[str, dict[str, int | float]] = {}
    goals: tuple[Goal, ...] = ()
    published: bool = True
    name: str = ""

    @property
    def section(self) -> str:
        """The name of its section in a result."""
        return f"kernels.{self.name}"

    @property
    def plan(self) -> Plan:
        """How the bench measures it: on the CPU, three launches or one quick one."""
        return Plan(
            self.measure,
            ranks=lambda _: (self.ranks,),
            devices=lambda _: ("cpu",),
            launches=lambda settings: 1 if settings.profile == "quick" else LAUNCHES,
        )

    def measure(self, world: World, settings: Settings) -> Iterator[Item]:
        """Measure one row after another, on every rank."""
        from costlab.implementations.rounds import measuring  # torch, which a reader lacks

        quick = settings.profile == "quick"
        rows = (self.quick or self.rows[:1]) if quick else self.rows
        build = pkgutil.resolve_name(self.build)
        order = random.Random(settings.seed)  # noqa: S311  (an order, no secret)
        for number, row in enumerate(rows, 1):
            where = f"{self.setting} {row} ({number} of {len(rows)}): "
            with build(world, **self.settings, **{self.setting: row}) as steps:
                times = yield from measuring(
                    world, steps, self._rounds(row, quick=quick), order, where
                )
            yield from self.metrics(row, times)
            del steps
            gc.collect()

    def _rounds(self, row: Row, *, quick: bool) -> Rounds:
        from costlab.implementations.rounds import Rounds

        changes = self.rounds | self.rounds_of.get(str(row), {})
        return Rounds(**(changes | (QUICK if quick else {})))  # type: ignore[arg-type]

    def metrics(self, row: Row, times: Mapping[str, Sequence[float]]) -> Iterator[Metric]:
        """Yield what one launch's rounds of a row say: steps, and ratios to the first column."""
        scalars = {name: value for name, value in self.settings.items() if type(value) is not list}
        about = scalars | {self.setting: row}
        first = self.columns[0].contestant
        for column in self.columns:
            yield timed(self.step(row, column), times[column.contestant], **about)
        for column in self.columns[1:]:
            metric = ratio(self.ratio(row, column), times[column.contestant], times[first], **about)
            yield msgspec.structs.replace(metric, series=[])  # the steps' say it

    def step(self, row: Row, column: Column) -> Name:
        """Return the name of a contestant's step."""
        return Name(
            "kernels", "step", case=self.name, row=str(row), code=column.code, link=column.link
        )

    def ratio(self, row: Row, column: Column) -> Name:
        """Return the name of a step's ratio to the first column's."""
        return self.step(row, column).but(what="ratio", over=self.columns[0].code)


@cache
def cases() -> Mapping[str, Case]:
    """Return every case by name, in the order of the page."""
    tables = tomllib.loads(Path(__file__).with_name("cases.toml").read_text("utf-8"))
    return {
        name: msgspec.convert(table | {"name": name}, Case, strict=True)
        for name, table in tables.items()
    }


def select(names: Sequence[str]) -> list[Case]:
    """Return the cases of these names, or all of them if there are none.

    Raises:
        click.UsageError: there is no such case.
    """
    every = cases()
    for name in names:
        if name not in every:
            raise click.UsageError(f"no case {name!r}; there are {', '.join(every)}")
    return [every[name] for name in names or every]
