"""A command that measures: from its options to a finished run."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from costlab.record import noise, options, samples
from costlab.record.options import Settings
from costlab.record.provenance import MACHINE, cores, provenance
from costlab.record.result import Result, load
from costlab.run import launch, progress
from costlab.run.run import Run
from costlab.sections import plan
from costlab.sections.plan import SectionError

if TYPE_CHECKING:
    from shardlab.comm import World


class RunInterruptedError(click.ClickException):
    """The run was ended from outside; says where what it measured is."""

    exit_code = 130


@contextlib.contextmanager
def measured(
    names: list[str], *, whole: bool, arguments: list[str], profile: str, ranks: int | None,
    sizes: tuple[int, ...], hidden: tuple[int, ...], device: str, seed: int, timeout: float,
    out: Path | None, resume: Path | None = None, minutes: float | None = 0.0,
) -> Iterator[Run]:  # fmt: skip
    """Measure sections; yield the finished run.

    Args:
        names: of the sections; the others are settings of the run, but for
        resume: a result that broke off: by its settings, what it lacks is measured.
        minutes: the run's budget; 0 for none, None for the profile's.

    Raises:
        UsageError: the result to go on with is another machine's.
        LaunchError: torchrun's ranks can't meet.
        RunInterruptedError: by Ctrl-C, or a request to end; what was measured is saved.
    """
    before = load(resume).with_series(samples.load(resume)) if resume else None
    device = options.device(str(before.settings["device"]) if before else device)
    with contextlib.ExitStack() as stack:
        world: World | None = None
        if launch.launched(os.environ):
            world = stack.enter_context(launch.joined(device, timeout=timeout))
            ranks = world.size
        settings = Settings(
            profile=profile, sizes=sizes, hidden=hidden, device=device, seed=seed,
            sections=tuple(names),
            ranks=ranks or (2 if device == "cpu" else max(1, options.gpus())),
        )  # fmt: skip
        if before:
            settings = msgspec.convert(before.settings, Settings)
        if minutes is None:
            minutes = plan.MINUTES[settings.profile]
        settings = msgspec.structs.replace(settings, minutes=minutes)
        speaks = world is None or world.rank == 0
        facts = _facts(before, settings, arguments, world) if speaks else {}
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _interrupt))
        others = noise.watch_others() if speaks else noise.OtherPrograms(0.0, [])
        if others.busy:  # the run's first line
            click.echo(f"note: {others.describe()}", err=True)
        if speaks:
            _warn(names, settings, alone_here=world is None)
        with progress.display(names, speaks=speaks) as show:
            path = (out or resume or options.new_file()) if speaks else None
            run = Run(
                settings, path, show, facts, world=world, timeout=timeout, before=before,
                pace=_pace(others),
            )  # fmt: skip
            _measure(run, names, whole=whole)
        yield run


def _pace(others: noise.OtherPrograms) -> float:
    """Return how many times as long a run is likely to take beside other programs.

    They leave it fewer cores, and rounds that they disturb are measured again.
    """
    return 2 / max(0.25, 1 - others.share) if others.busy else 1.0


def _measure(run: Run, names: list[str], *, whole: bool) -> None:
    try:
        run.measure(names, whole=whole)
    except KeyboardInterrupt as fault:
        where = (
            f"; what was measured is in {run.result_file} (see --resume)" if run.result_file else ""
        )
        raise RunInterruptedError(f"{str(fault) or 'interrupted'}{where}") from None


def _facts(
    before: Result | None, settings: Settings, arguments: list[str], world: World | None
) -> dict[str, Any]:
    """Return what the run is measured on; of one gone on with, what it began on."""
    facts = provenance(settings, arguments, ranks=world.size if world else None)
    if before is None:
        return facts
    _same_machine(before.provenance, facts)
    changed = "" if facts["clean"] else ", with changes"
    now = f"{facts['date']}, commit {facts['commit']}{changed}"
    earlier = before.provenance.get("resumed")
    return before.provenance | {"resumed": f"{earlier}; {now}" if earlier else now}


def _warn(names: list[str], settings: Settings, *, alone_here: bool) -> None:
    """Say what makes the numbers another thing than was asked for."""
    if settings.device == "cpu" and settings.ranks > cores():
        click.echo(f"note: {settings.ranks} ranks on {cores()} cores: they take turns", err=True)
    if settings.device == "cuda" and alone_here and (line := alone(names, settings)):
        click.echo(line, err=True)


def alone(names: list[str], settings: Settings) -> str:
    """Say what wants more ranks than there are GPUs, and so stands on the CPU; or nothing."""
    devices, short = options.gpus(), list[str]()
    for name in names:
        with contextlib.suppress(SectionError):
            section = plan.load(name)
            if section.measure and "cuda" in section.devices(settings):
                wanted = section.ranks(settings)
                short += [f"{name} on {ranks} ranks" for ranks in wanted if ranks > devices]
    if not short:
        return ""
    return (
        f"note: {devices} GPU{'s' * (devices != 1)}: {', '.join(short)} measured on the CPU, each "
        f"row says so; to shard or to cut takes two ranks at least, each on a GPU of its own"
    )


def _same_machine(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if changed := [name for name in MACHINE if before.get(name) != now.get(name)]:
        was = "; ".join(
            f"{name} {before.get(name, '–')}, here {now.get(name, '–')}" for name in changed
        )
        raise click.UsageError(f"--resume: that run was on another machine: {was}; measure anew")


def _interrupt(_: int, __: object) -> None:
    """End as Ctrl-C does: torchrun, Slurm and `timeout` ask with SIGTERM."""
    raise KeyboardInterrupt("asked to end (SIGTERM)")
