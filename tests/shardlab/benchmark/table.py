"""A comparison's JSON as a Markdown table, written into its page in both languages."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from costlab.record.noise import describe
from costlab.record.result import Load
from tests.shardlab.benchmark.protocol import Case

ROOT = Path(__file__).parents[3]
MEASURED = ROOT / "docs/measured"
PAGES = {
    "en": ROOT / "docs/reference/kernels-speed.md",
    "es": ROOT / "docs/reference/kernels-speed.es.md",
}
# A case whose slow rounds take more than three times its median isn't published. On an idle machine
# the worst case measured so far, eight ranks on two cores, had 2.3; a disturbed one had 8.7.
LARGEST_SPREAD = 3.0
Words = Mapping[str, str]  # language ("en", "es") to text

ABOUT = {
    "en": "Milliseconds per step; in brackets, the ratio to the column “{base}”. {launches} "
    "launches, {date}; {processor}, {cores} cores, one thread per rank; torch {torch}, "
    "megatron-core {megatron-core}; commit `{commit:.10}`. ",
    "es": "Milisegundos por paso; entre paréntesis, el cociente con la columna «{base}». "
    "{launches} lanzamientos, {date}; {processor}, {cores} núcleos, un hilo por rank; torch "
    "{torch}, megatron-core {megatron-core}; commit `{commit:.10}`. ",
}
UNWATCHED = {
    "en": "Whether something else used the cores was not recorded.",
    "es": "No se registró si otra cosa usó los núcleos.",
}


@dataclass(frozen=True)
class Layout:
    """What the columns are called.

    Args:
        marker: the block <!-- measured: MARKER --> … <!-- /measured: MARKER --> of the page.
        key: the setting that names a row.
        row: its heading.
        columns: contestant to heading, in order; the base is one of them.
    """

    marker: str
    key: str
    row: Words
    columns: Mapping[str, Words]


def render(result: Mapping[str, Any], layout: Layout, language: str) -> str:
    """The table and, under it, what it was measured on."""
    base = result["base"]
    heads = [layout.row[language], *(words[language] for words in layout.columns.values())]
    lines = [f"| {' | '.join(heads)} |", "|--:" * len(heads) + "|"]
    for case in result["cases"]:
        setting = case["settings"][layout.key]
        cells = [_number(setting, language) if isinstance(setting, int) else setting]
        measured = Case(case["settings"], case["launches"])
        for name in layout.columns:
            cells.append(_cell(measured, name, base, language))
        lines.append(f"| {' | '.join(cells)} |")
    about = ABOUT[language].format(
        base=layout.columns[base][language],
        launches=len(result["cases"][0]["launches"]),
        **(result["provenance"] | {"date": result["provenance"]["date"][:10]}),
    )
    loads = [msgspec.convert(case.get("load", {}), Load) for case in result["cases"]]
    load = sum(loads, Load())
    course = f"{describe(load).of(language)}." if load.rounds else UNWATCHED[language]
    return "\n".join([*lines, "", about + course])


def publish(result: Mapping[str, Any], layout: Layout) -> None:
    """Keep the JSON and write its table into the page, in both languages.

    Raises:
        ValueError: the machine was disturbed; nothing was written.
    """
    refuse_disturbed(result)
    keep(result)
    for language, page in PAGES.items():
        fill(page, layout.marker, render(result, layout, language))


def refuse_disturbed(result: Mapping[str, Any]) -> None:
    """Raise unless every case's spread is at most LARGEST_SPREAD.

    Raises:
        ValueError: names each case, its contestant and their spread.
    """
    disturbed = [
        f"{case['settings']}, {name}: {spread:.1f}"
        for case in result["cases"]
        for name in case["launches"][0]
        if (spread := Case(case["settings"], case["launches"]).spread(name)) > LARGEST_SPREAD
    ]
    if disturbed:
        raise ValueError(
            f"{result['what']} is not published: the 90th percentile of its rounds is more than "
            f"{LARGEST_SPREAD} times their median. Measure it again on an idle machine.\n"
            + "\n".join(disturbed)
        )


def keep(result: Mapping[str, Any]) -> None:
    """Write the JSON, under the name of what it measured."""
    text = json.dumps(result, separators=(",", ":")) + "\n"
    (MEASURED / f"{result['what']}.json").write_text(text, "utf-8")


def _cell(case: Case, name: str, base: str, language: str) -> str:
    milliseconds = 1000 * statistics.median(case.typical(name))
    places = max(0, 2 - math.floor(math.log10(milliseconds)))
    whole = places == 0
    shown = _number(round(milliseconds), language) if whole else f"{milliseconds:.{places}f}"
    if name == base:
        return shown
    ratios = case.ratios(name, base)
    return f"{shown} (**{statistics.median(ratios):.2f}**, {min(ratios):.2f}–{max(ratios):.2f})"


def _number(value: int, language: str) -> str:
    return f"{value:,}" if language == "en" else f"{value}"


def fill(page: Path, marker: str, text: str) -> None:
    """Write `text` between the page's markers; everything else in it stays.

    Raises:
        ValueError: the page has no such markers.
    """
    opening = f"<!-- measured: {marker} -->"
    closing = f"<!-- /measured: {marker} -->"
    before = page.read_text("utf-8")
    block = re.compile(re.escape(opening) + r".*?" + re.escape(closing), re.DOTALL)
    if not block.search(before):
        raise ValueError(f"{page} has no block {opening} … {closing}; add it where the table goes")
    after = block.sub(lambda _: f"{opening}\n\n{text}\n\n{closing}", before)
    page.write_text(after, "utf-8")
