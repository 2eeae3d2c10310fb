"""`tools/bench kernels`: one training step by several implementations, row by row of a table.

The cases are in kernels.toml. A case is a section of a result, `kernels.NAME`. It has two kinds of
metrics, of each launch the medians of its rounds: the seconds of each contestant's step, and the
ratio of each step to the first contestant's, taken within each round. The command measures the
cases by the bench's launcher and writes their tables.
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


import os
import sys
from typing import TYPE_CHECKING

from costlab.record import options

if TYPE_CHECKING:
    from costlab.run.run import Run

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
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
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


LOCAL = options.LOCAL / "kernels"
CODE = ("tools", ".ci/lock")  # what a number that names a commit is measured with


@click.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--list", "listed", is_flag=True, help="List the cases and measure nothing.")
@click.option("--quick", is_flag=True, help="A few rows, once; print them and write no page.")
@options.SEED
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    help="Seconds that a collective, or a silence, may take.",
)
@options.OUT
@options.RESUME
def kernels(
    cases: tuple[str, ...], *, listed: bool, quick: bool, resume: Path | None, **arguments: Any
) -> int:  # fmt: skip
    """Measure shardlab's steps and other libraries'.

    Each CASE is a table of docs/reference/kernels-speed.md; by default all are measured. A full run
    writes the tables and their results in docs/measured.
    """
    if listed:
        width = max(len(case.name) for case in select(()))
        for case in select(cases):
            click.echo(f"{case.name:{width}}  {case.about}")
        return 0
    if "RANK" in os.environ:
        raise click.UsageError("kernels starts its own ranks: run it without torchrun")
    if resume:
        cases, quick = _resumed(resume, cases)
    return _measure(select(cases), quick=quick, resume=resume, **arguments)


def _resumed(file: Path, cases: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Return the cases that a run was asked for, unless others are named, and whether quickly.

    Raises:
        click.UsageError: the run is none of kernels.
    """
    from costlab.record.result import load

    settings = load(file).settings
    sections = settings.get("sections", [])
    assert isinstance(sections, list)
    topics = [str(name).partition(".") for name in sections]
    if not topics or any(topic != "kernels" for topic, _, _ in topics):
        raise click.UsageError(f"--resume: {file} is no run of `tools/bench kernels`")
    return cases or tuple(case for _, _, case in topics), settings["profile"] == "quick"


def _measure(cases: list[Case], *, quick: bool, out: Path | None, **arguments: Any) -> int:
    from costlab.record.provenance import uncommitted
    from costlab.run.measuring import measured

    if not quick and uncommitted(*CODE):
        raise click.UsageError(
            f"{' or '.join(CODE)} differ from the commit that the numbers would name: commit "
            "first, or take --quick"
        )
    path = out or arguments["resume"] or options.new_file(LOCAL)
    with measured(
        [case.section for case in cases], whole=False, arguments=sys.argv[1:],
        profile="quick" if quick else "full", ranks=None, sizes=(), hidden=(), device="cpu",
        out=path, **arguments,
    ) as run:  # fmt: skip
        return _publish(run, cases, quick=quick)


def _publish(run: Run, cases: list[Case], *, quick: bool) -> int:
    """Print each table; of a full run, write it, and judge it by its goals."""
    from costlab.publish import kernels_page

    errors = list(run.faults)
    for case in cases:
        if run.result.sections[case.section].status != "complete":
            continue
        click.echo(f"\n{case.name}\n\n{kernels_page.render(run.result, case, 'en')}")
        if quick:
            continue
        errors += kernels_page.missed(run.result, case)
        try:
            if case.published:
                kernels_page.publish(run.result, case)
        except click.ClickException as fault:
            errors.append(fault.format_message())
    assert run.result_file  # of a run that speaks for itself
    file = options.relative(run.result_file)
    click.echo(f"{'partial: ' if run.faults else ''}{file}", err=True)
    for error in errors:
        click.echo(f"error: {error}", err=True)
    return bool(errors)
