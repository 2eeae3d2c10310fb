"""A command that measures: from its options to a finished run."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costlab import asked, progress, torchrun
from costlab.provenance import cores, provenance
from costlab.run import Run
from costlab.settings import Settings

if TYPE_CHECKING:
    from shardlab.comm import World


class RunInterruptedError(Exception):
    """The run was ended from outside; says where what it measured is."""


@contextlib.contextmanager
def measured(
    names: list[str], *, whole: bool, arguments: list[str], profile: str, ranks: int | None,
    sizes: tuple[int, ...], hidden: tuple[int, ...], device: str, seed: int, timeout: float,
    out: Path | None,
) -> Iterator[Run]:  # fmt: skip
    """Measure sections; yield the finished run.

    Raises:
        LaunchError: torchrun's ranks can't meet.
        RunInterruptedError: by Ctrl-C, or a request to end; what was measured is saved.
    """
    device = asked.device(device)
    with contextlib.ExitStack() as stack:
        world: World | None = None
        if torchrun.launched(os.environ):
            world = stack.enter_context(torchrun.joined(device, timeout=timeout))
            ranks = world.size
        settings = Settings(
            profile=profile, sizes=sizes, hidden=hidden, device=device, seed=seed,
            ranks=ranks or (2 if device == "cpu" else max(1, asked.gpus())),
        )  # fmt: skip
        speaks = world is None or world.rank == 0
        facts: dict[str, Any] = {}
        if speaks:
            facts = provenance(settings, arguments, ranks=world.size if world else None)
        before = signal.signal(signal.SIGTERM, _interrupt)
        stack.callback(signal.signal, signal.SIGTERM, before)
        if speaks and device == "cpu" and settings.ranks > cores():
            click.echo(
                f"note: {settings.ranks} ranks on {cores()} cores: they take turns", err=True
            )
        with progress.display(names, speaks=speaks) as show:
            path = (out or asked.new_file()) if speaks else None
            run = Run(settings, path, show, facts, world=world, timeout=timeout)
            try:
                run.measure(names, whole=whole)
            except KeyboardInterrupt as fault:
                kept = f"; what was measured is in {run.kept}" if run.kept else ""
                raise RunInterruptedError(f"{str(fault) or 'interrupted'}{kept}") from None
        yield run


def _interrupt(_: int, __: object) -> None:
    """End as Ctrl-C does: torchrun, Slurm and `timeout` ask with SIGTERM."""
    raise KeyboardInterrupt("asked to end (SIGTERM)")
