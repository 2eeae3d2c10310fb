"""The tables of the page on the kernels' speed: each from one result, in docs/measured.

A table is written between two marks of the page, `<!-- measured: NAME -->` and its end, in both
languages. A case whose rounds were disturbed is refused: its 90th percentile is more than
LARGEST_SPREAD times its median. On an idle machine the worst case measured so far, eight ranks on
two cores, had 2.3; a disturbed one had 8.7.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from costlab.publish.page import LANGUAGES, name
from costlab.record import samples
from costlab.record.noise import describe
from costlab.record.options import ROOT
from costlab.record.result import Metric, Result, load, save
from costlab.record.statistics import paired_ratio_ci
from costlab.record.words import say
from costlab.sections.kernels import Case, Goal, Row

MEASURED = ROOT / "docs/measured"
PAGES = {
    language: ROOT / "docs/reference" / name("kernels-speed", language) for language in LANGUAGES
}
LARGEST_SPREAD = 3.0


class DisturbedError(click.ClickException):
    """A measurement that isn't published; names each step and its spread."""


def read(case: Case, folder: Path = MEASURED) -> Result:
    """Return a case's committed result, with its samples.

    Raises:
        ResultError: it can't be read.
    """
    path = folder / f"{case.name}.json"
    return load(path).with_series(samples.load(path))


def publish(
    result: Result, case: Case, *, folder: Path = MEASURED, pages: Mapping[str, Path] = PAGES
) -> list[Path]:
    """Keep a case of a run as a result of its own, and write its table; return the files.

    Raises:
        DisturbedError: the machine was disturbed; nothing was written.
        ResultError: the result can't be written.
    """
    refuse_disturbed(result, case)
    sections = {case.section: result.sections[case.section]}
    alone = msgspec.structs.replace(result, sections=sections)
    path = folder / f"{case.name}.json"
    save(alone, path)
    samples.save(alone, path)
    for language, page in pages.items():
        fill(page, case.name, render(alone, case, language))
    return [path, *pages.values()]


def refuse_disturbed(result: Result, case: Case) -> None:
    """Raise unless the spread of each step is at most LARGEST_SPREAD.

    Raises:
        DisturbedError: names each step and its spread.
    """
    disturbed = [
        f"{metric.id}: {spread:.1f}"
        for metric in result.sections[case.section].metrics
        if metric.series and (spread := max(map(_spread, metric.series))) > LARGEST_SPREAD
    ]
    if disturbed:
        raise DisturbedError(
            f"{case.name} is not published: the 90th percentile of its rounds is more than "
            f"{LARGEST_SPREAD:g} times their median; measure it again on an idle machine "
            f"({'; '.join(disturbed)})"
        )


def _spread(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=10)[-1] / statistics.median(seconds)


def missed(result: Result, case: Case) -> list[str]:
    """Return a line for each goal that a result with its samples misses."""
    columns = {column.contestant: column for column in case.columns}
    metrics = result.metrics()

    def of(goal: Goal, row: Row) -> float:
        numerator, denominator = (
            metrics[case.step(row, columns[contestant]).id].series
            for contestant in (goal.contestant, goal.over)
        )
        launches = zip(numerator, denominator, strict=True)
        return statistics.median(paired_ratio_ci(*launch).value for launch in launches)

    return [
        f"{case.name}, {case.setting} {row}: {goal.contestant} takes {ratio:.2f}× the step of "
        f"{goal.over}, the goal is {goal.most:.2f}×"
        for goal in case.goals
        for row in goal.rows or case.rows
        if (ratio := of(goal, row)) > goal.most
    ]


def render(result: Result, case: Case, language: str) -> str:
    """Return the table and, under it, what it was measured on."""
    metrics, section = result.metrics(), result.sections[case.section]
    first = case.columns[0]
    rows = [row for row in dict.fromkeys([*case.rows, *case.quick])
            if case.step(row, first).id in metrics]  # fmt: skip
    cells = [
        [_number(row, language), *_cells(metrics, case, row, language)]
        for row in rows
    ]  # fmt: skip
    heads = [case.row.of(language), *(column.title(language) for column in case.columns)]
    facts = result.provenance | {
        "date": str(result.provenance["date"])[:10],
        "base": first.title(language),
        "launches": metrics[case.step(rows[0], first).id].detail.get("launches", 1),
    }
    course = (
        f"{describe(section.load).of(language)}."
        if section.load and section.load.rounds
        else say("kernels.unwatched", language)
    )
    about = say("kernels.about", language).format(**facts)
    rows_of_text = [f"| {' | '.join(row)} |" for row in (heads, *cells)]
    rows_of_text.insert(1, "|--:" * len(heads) + "|")
    return "\n".join([*rows_of_text, "", f"{about} {course}"])


def _cells(metrics: Mapping[str, Metric], case: Case, row: Row, language: str) -> list[str]:
    first, *rest = case.columns
    cells = [_milliseconds(metrics[case.step(row, first).id], language)]
    for column in rest:
        shown = _milliseconds(metrics[case.step(row, column).id], language)
        ratio = metrics[case.ratio(row, column).id]
        cells.append(f"{shown} (**{ratio.value:.2f}**, {ratio.low:.2f}–{ratio.high:.2f})")
    return cells


def _milliseconds(metric: Metric, language: str) -> str:
    value = 1000 * metric.value
    places = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{places}f}" if places else _number(round(value), language)


def _number(value: Row, language: str) -> str:
    return f"{value:,}" if isinstance(value, int) and language == "en" else str(value)


def fill(page: Path, mark: str, text: str) -> None:
    """Write `text` between the page's marks; everything else in it stays.

    Raises:
        ValueError: the page has no such marks.
    """
    opening, closing = f"<!-- measured: {mark} -->", f"<!-- /measured: {mark} -->"
    before = page.read_text("utf-8")
    block = re.compile(re.escape(opening) + r".*?" + re.escape(closing), re.DOTALL)
    if not block.search(before):
        raise ValueError(f"{page} has no block {opening} … {closing}; add it where the table goes")
    after = block.sub(lambda _: f"{opening}\n\n{text}\n\n{closing}", before)
    page.write_text(after, "utf-8")
