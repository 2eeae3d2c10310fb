"""A run: section after section into one result, saved as it grows.

Whatever happens, what was measured stays: the result is written before the first section (so that
a folder that can't be written is found out at once), after every launch, and where a run breaks
off. If the disk is full by then, it goes to the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from costlab.record import foreign_load, options, samples
from costlab.record.result import Load, Metric, Result, ResultError, Section, save
from costlab.record.settings import Settings
from costlab.record.statistic import over_launches
from costlab.run import launch, torchrun
from costlab.run.launch import LaunchError
from costlab.run.progress import Display
from costlab.run.uninterrupted import uninterrupted
from costlab.sections import plan
from costlab.sections.plan import Plan, SectionError

if TYPE_CHECKING:
    from shardlab.comm import World


class Run:
    """One run.

    Args:
        settings: of the run.
        out: the file to write; None on ranks that don't speak for the run.
        show: where progress goes.
        provenance: what it is measured on.
        world: torchrun's ranks, where it launched this program; else each section gets its own.
        timeout: seconds that a collective may take.
        before: a result to go on with: its complete sections are not measured again.

    Attributes:
        result: as far as it got.
        faults: one line for each section that broke off.
        kept: the file that holds the result.
    """

    def __init__(
        self, settings: Settings, out: Path | None, show: Display, provenance: dict[str, Any], *,
        world: World | None = None, timeout: float = launch.TIMEOUT, before: Result | None = None,
    ) -> None:  # fmt: skip
        self.result = Result(provenance=provenance, settings=msgspec.to_builtins(settings))
        self._there = before.sections if before else {}
        self.result.sections |= self._there
        self.faults: list[str] = []
        self.kept = out
        self._settings = settings
        self._show = show
        self._world = world
        self._timeout = timeout
        self._load: Load | None = None  # of the section that is measured

    def measure(self, names: list[str], *, whole: bool = False) -> None:
        """Measure some sections, in order.

        Args:
            names: of the sections.
            whole: it is the whole lab: a section that isn't there or doesn't suit is left out.

        Raises:
            SectionError: a section that was asked for isn't there, or doesn't suit these ranks.
            ResultError: the result can't be written.
            KeyboardInterrupt: Ctrl-C; what was measured is saved.
        """
        self._save()
        for name in names:
            try:
                one = plan.load(name)
                worlds = self._worlds(name, one)
            except SectionError as fault:
                if not whole:
                    raise
                self._show.end(name, f"left out: {fault}", well=True)
                continue
            there = self._there.get(name)
            if worlds and there and there.status == "complete":
                self._show.end(name, "there already", well=True)
                continue
            self._section(name, one, worlds)
            if self.faults and self._world is not None:
                return  # these ranks are of no more use

    def _worlds(self, name: str, one: Plan) -> list[tuple[str, int]]:
        """Return the worlds to measure in: a device and a number of ranks each.

        Where there are too few GPUs for its ranks, a section measures on the CPU.
        """
        if not one.measure:
            return []
        worlds = []
        for device in one.devices(self._settings):
            there = msgspec.structs.replace(self._settings, device=device)
            for ranks in one.ranks(there):
                short = device == "cuda" and ranks > options.gpus()
                worlds.append(("cpu" if short else device, ranks))
        worlds = list(dict.fromkeys(worlds))
        if self._world is None:
            return worlds
        mine = (self._world.device.type, self._world.size)
        if mine not in worlds:
            wanted = " or ".join(f"{ranks} ranks on {device}" for device, ranks in worlds)
            raise SectionError(
                f"section {name!r} wants {wanted}; torchrun launched {mine[1]} on {mine[0]}"
            )
        return [mine]

    def _section(self, name: str, one: Plan, worlds: list[tuple[str, int]]) -> None:
        there = self._there.get(name, Section()).metrics if worlds else []
        section = self.result.sections[name] = Section(note="under way", metrics=list(there))
        begin = time.monotonic()
        self._show.begin(name)
        try:
            if worlds:
                self._launches(section, one, worlds)
            if one.derive and (self._world is None or self._world.rank == 0):
                section.metrics += one.derive(self.result.metrics())
        except LaunchError as fault:
            section.note = str(fault)
        except KeyboardInterrupt as fault:
            section.note = str(fault) or "interrupted"
            raise
        except (ValueError, LookupError, ArithmeticError) as fault:  # of what is derived
            section.note = f"{type(fault).__name__}: {fault}"
        else:
            section.status, section.note = "complete", ""
        finally:
            # Where a rank is lost, torchrun asks the others to end, maybe in the midst of this.
            with uninterrupted():
                self._close(name, section, time.monotonic() - begin)

    def _close(self, name: str, section: Section, seconds: float) -> None:
        section.seconds = round(seconds, 1)
        well = section.status == "complete"
        line = f"{len(section.metrics)} metrics"
        if not well:
            self.faults.append(f"{name}: {section.note}")
            line = f"{section.note}; {line} kept"
        self._show.end(name, line, well=well)
        self._save()

    def _launches(self, section: Section, one: Plan, worlds: list[tuple[str, int]]) -> None:
        """Measure launch after launch; what several of them measured becomes one metric each."""
        there, launched = section.metrics, dict[str, list[Metric]]()
        section.load = self._load = None
        count = 1 if self._world is not None else one.launches(self._settings)
        for number in range(count):
            latest: dict[str, Metric] = {}  # of this launch: an id said again replaces what it said
            try:
                for device, ranks in worlds:
                    settings = msgspec.structs.replace(
                        self._settings, device=device, seed=self._settings.seed + number,
                        launch=number,
                    )  # fmt: skip
                    where = f"launch {number + 1} of {count}: " if count > 1 else ""
                    where += f"{ranks} ranks on {device}: " if len(worlds) > 1 else ""
                    with contextlib.closing(self._metrics(one, settings, ranks, where)) as came:
                        for metric in came:
                            latest[metric.id] = metric.on(device)
            finally:
                with uninterrupted():
                    for name, metric in latest.items():
                        launched.setdefault(name, []).append(metric)
                    made = [over_launches(same) for same in launched.values()]
                    section.metrics = _no_less(there, made)
                    section.load = self._load
            self._save()
        section.metrics = made

    def _metrics(self, one: Plan, settings: Settings, ranks: int, where: str) -> Generator[Metric]:
        def progress(said: str | Load) -> None:
            if isinstance(said, Load):
                self._load = said + (self._load or Load())
                said = foreign_load.said(said).en
            self._show.step(where + said)

        assert one.measure is not None  # or it has no world to be measured in
        if self._world is not None:
            return torchrun.run(one.measure, settings, self._world, progress)
        return launch.run(
            one.measure, settings, ranks=ranks, timeout=self._timeout, on_progress=progress
        )

    @uninterrupted()
    def _save(self) -> None:
        """Write the result; where that fails, to another disk before giving up."""
        if self.kept is None:
            return
        try:
            self._write(self.kept)
        except ResultError as fault:
            if not self.result.sections:
                raise
            other = Path(tempfile.gettempdir(), f"costlab-{self.kept.name}")
            try:
                self._write(other)
            except ResultError:
                raise fault from None
            self.kept = other
            raise ResultError(f"{fault}; what was measured is in {other}") from None

    def _write(self, path: Path) -> None:
        save(self.result, path)
        samples.save(self.result, path)


def _no_less(there: list[Metric], made: list[Metric]) -> list[Metric]:
    """Return what an interrupted section had, each metric until there is one worth as much.

    So whoever goes on with a run and is interrupted again has what the first one left.
    """
    kept = {metric.id: metric for metric in there}
    for metric in made:
        before = kept.get(metric.id)
        if before is None or _worth(metric) >= _worth(before):
            kept[metric.id] = metric
    return list(kept.values())


def _worth(metric: Metric) -> tuple[int, int]:
    return int(metric.detail.get("launches", 1)), metric.samples
