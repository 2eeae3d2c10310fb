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
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from costlab.record import noise, options, samples
from costlab.record.options import Budget, Settings
from costlab.record.result import Launch, Load, Metric, Result, ResultError, Section, save
from costlab.record.statistics import over_launches
from costlab.run import launch
from costlab.run.launch import LaunchError, defer_interrupts
from costlab.run.progress import Display
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
        pace: how many times as long as on a quiet machine the run is likely to take.

    Attributes:
        result: as far as it got.
        faults: one line for each section that broke off.
        kept: the file that holds the result.
    """

    def __init__(
        self, settings: Settings, out: Path | None, show: Display, provenance: dict[str, Any], *,
        world: World | None = None, timeout: float = launch.TIMEOUT, before: Result | None = None,
        pace: float = 1.0,
    ) -> None:  # fmt: skip
        self.result = Result(provenance=provenance, settings=msgspec.to_builtins(settings))
        self._there = before.sections if before else {}
        self.result.sections |= self._there
        self.faults: list[str] = []
        self.result_file = out
        self._settings = settings
        self._show = show
        self._world = world
        self._timeout = timeout
        self._load: Load | None = None  # of the section that is measured
        self._budget = Budget.of(60 * settings.minutes)
        self._pace = pace

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
        begin, usual_done = time.monotonic(), 0.0
        for position, name in enumerate(names):
            try:
                section_plan = plan.load(name)
                worlds = self._worlds(name, section_plan)
            except SectionError as fault:
                if not whole:
                    raise
                self._show.end(name, f"left out: {fault}", well=True)
                continue
            previous = self._there.get(name)
            if worlds and previous and previous.status == "complete":
                self._show.end(name, "there already", well=True)
                continue
            rest = sum(self._usual(later) for later in names[position:])
            if usual_done:
                self._pace = max(1.0, (time.monotonic() - begin) / usual_done)
            self._show.begin(name, self.estimate_end(rest))
            share = self._usual(name) / rest if rest else 1.0
            self._section(name, section_plan, worlds, self._budget.share(share))
            usual_done += self._usual(name)
            if self.faults and self._world is not None:
                return  # these ranks are of no more use

    def _usual(self, name: str) -> float:
        """Return the seconds that a section takes on two quiet cores; 0 for one without ranks."""
        if name == "one-gpu" and self._settings.device == "cpu":
            return 0.0
        return plan.SECONDS[self._settings.profile].get(name, 0.0)

    def estimate_end(self, usual_seconds: float) -> str:
        """Say when a run ends that takes so long on two quiet cores, by its pace and its budget."""
        if not self._settings.minutes or not usual_seconds:
            return ""
        left, word = self._budget.remaining, "by"
        if not (self._settings.sizes or self._settings.hidden):
            left, word = min(usual_seconds * self._pace, left), "about"
        return f"ends {word} {datetime.now().astimezone() + timedelta(seconds=left):%H:%M}"

    def _worlds(self, name: str, section_plan: Plan) -> list[tuple[str, int]]:
        """Return the worlds to measure in: a device and a number of ranks each.

        Where there are too few GPUs for its ranks, a section measures on the CPU.
        """
        if not section_plan.measure:
            return []
        worlds = []
        for device in section_plan.devices(self._settings):
            settings = msgspec.structs.replace(self._settings, device=device)
            for ranks in section_plan.ranks(settings):
                short = device == "cuda" and ranks > options.gpus()
                worlds.append(("cpu" if short else device, ranks))
        worlds = list(dict.fromkeys(worlds))
        if self._world is None:
            return worlds
        current = (self._world.device.type, self._world.size)
        if current not in worlds:
            wanted = " or ".join(f"{ranks} ranks on {device}" for device, ranks in worlds)
            raise SectionError(
                f"section {name!r} wants {wanted}; torchrun launched {current[1]} on {current[0]}"
            )
        return [current]

    def _section(
        self, name: str, section_plan: Plan, worlds: list[tuple[str, int]], budget: Budget
    ) -> None:
        before = self._there.get(name, Section()) if worlds else Section()
        section = Section(note="under way", metrics=list(before.metrics))
        self.result.sections[name] = section
        begin = time.monotonic()
        try:
            if worlds:
                self._launches(section, section_plan, worlds, before, budget)
            if section_plan.derive and (self._world is None or self._world.rank == 0):
                section.metrics += section_plan.derive(self.result.metrics())
        except LaunchError as fault:
            section.note = str(fault)
        except KeyboardInterrupt as fault:
            section.note = str(fault) or "interrupted"
            raise
        except (ValueError, LookupError, ArithmeticError) as fault:  # of what is derived
            section.note = f"{type(fault).__name__}: {fault}"
        else:
            cut = section.load is not None and section.load.cut_short
            section.status, section.note = "cut" if cut else "complete", ""
        finally:
            # Where a rank is lost, torchrun asks the others to end, maybe in the midst of this.
            with defer_interrupts():
                self._close(name, section, time.monotonic() - begin)

    def _close(self, name: str, section: Section, seconds: float) -> None:
        section.seconds = round(seconds, 1)
        well = section.status != "partial"
        line = f"{len(section.metrics)} metrics"
        if section.status == "cut" and section.load:
            line += f"; {noise.describe(section.load).en}"
        if not well:
            self.faults.append(f"{name}: {section.note}")
            line = f"{section.note}; {line} kept"
        self._show.end(name, line, well=well)
        self._save()

    def _launches(
        self, section: Section, section_plan: Plan, worlds: list[tuple[str, int]], before: Section,
        budget: Budget,
    ) -> None:  # fmt: skip
        """Measure launch after launch; what several of them measured becomes one metric each.

        Launches that the section had finished `before` are not measured again, up to the first one
        that was cut short. If the section's time is up after a launch, no other follows.
        """
        previous = section.metrics
        finished = list(takewhile(_whole, before.finished()))
        launched = dict[str, list[Metric]]()
        for launch_before in finished:
            for metric in launch_before.metrics:
                launched.setdefault(metric.id, []).append(metric)
        merged = [over_launches(same) for same in launched.values()]
        section.load = _loads(finished)
        count = 1 if self._world is not None else section_plan.launches(self._settings)
        for number in range(len(finished), count):
            if finished and not budget.remaining:
                break
            share = budget.share(1 / (count - number))
            latest: dict[str, Metric] = {}  # of this launch: an id said again replaces what it said
            self._load = None
            try:
                for place, (device, ranks) in enumerate(worlds):
                    seconds = share.share(1 / (len(worlds) - place)).remaining
                    settings = msgspec.structs.replace(
                        self._settings, device=device, seed=self._settings.seed + number,
                        launch=number, seconds=max(1.0, seconds) if self._settings.minutes else 0.0,
                    )  # fmt: skip
                    where = f"launch {number + 1} of {count}: " if count > 1 else ""
                    where += f"{ranks} ranks on {device}: " if len(worlds) > 1 else ""
                    with contextlib.closing(
                        self._metrics(section_plan, settings, ranks, where)
                    ) as metrics:
                        for metric in metrics:
                            latest[metric.id] = metric.on(device)
                finished.append(Launch(metrics=list(latest.values()), load=self._load))
            finally:
                with defer_interrupts():
                    broken_off = [Launch(load=self._load)] if len(finished) == number else []
                    for name, metric in latest.items():
                        launched.setdefault(name, []).append(metric)
                    merged = [over_launches(same) for same in launched.values()]
                    section.metrics = merge_resumed(previous, merged)
                    section.load = _loads(finished + broken_off)
                    section.launches = [without_series(launch) for launch in finished]
            self._save()
        if missing := count - len(finished):
            section.load = (section.load or Load()) + Load(missing_launches=missing)
        section.metrics, section.launches = merged, [without_series(launch) for launch in finished]
        if not section.load or not section.load.cut_short:
            section.launches = msgspec.UNSET

    def _metrics(
        self, section_plan: Plan, settings: Settings, ranks: int, where: str
    ) -> Generator[Metric]:
        def progress(event: str | Load) -> None:
            if isinstance(event, Load):
                self._load = event + (self._load or Load())
                event = noise.describe(event).en
            self._show.step(where + event)

        assert section_plan.measure is not None  # or it has no world to be measured in
        if self._world is not None:
            return launch.run_here(section_plan.measure, settings, self._world, progress)
        return launch.run(
            section_plan.measure, settings, ranks=ranks, timeout=self._timeout, on_progress=progress
        )

    @defer_interrupts()
    def _save(self) -> None:
        """Write the result; where that fails, to another disk before giving up."""
        if self.result_file is None:
            return
        try:
            self._write(self.result_file)
        except ResultError as fault:
            if not self.result.sections:
                raise
            fallback = Path(tempfile.gettempdir(), f"costlab-{self.result_file.name}")
            try:
                self._write(fallback)
            except ResultError:
                raise fault from None
            self.result_file = fallback
            raise ResultError(f"{fault}; what was measured is in {fallback}") from None

    def _write(self, path: Path) -> None:
        save(self.result, path)
        samples.save(self.result, path)


def _whole(launch: Launch) -> bool:
    """Whether a launch measured all its rounds."""
    return not launch.load or not launch.load.cut_short


def _loads(launches: list[Launch]) -> Load | None:
    """Return what else ran in all of them; None if none has rounds that were watched."""
    loads = [part.load for part in launches if part.load]
    return sum(loads, Load()) if loads else None


def without_series(launch: Launch) -> Launch:
    """Return a launch as it is written: its series are with the section's metrics."""
    metrics = [msgspec.structs.replace(metric, series=[]) for metric in launch.metrics]
    return Launch(metrics=metrics, load=launch.load)


def merge_resumed(previous: list[Metric], measured: list[Metric]) -> list[Metric]:
    """Return what an interrupted section had, each metric until there is one worth as much.

    So whoever goes on with a run and is interrupted again has what the first one left.
    """
    merged = {metric.id: metric for metric in previous}
    for metric in measured:
        before = merged.get(metric.id)
        if before is None or _worth(metric) >= _worth(before):
            merged[metric.id] = metric
    return list(merged.values())


def _worth(metric: Metric) -> tuple[int, int]:
    return int(metric.detail.get("launches", 1)), metric.samples
