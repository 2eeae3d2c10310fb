"""`tools/bench kernels`: the cases measured by the bench's launcher, their tables written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costlab.record import options

if TYPE_CHECKING:
    from costlab.run.run import Run
    from costlab.sections.kernels.cases import Case

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
    from costlab.sections.kernels.cases import select

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
