"""RESULTS.md and RESULTS.es.md: a result as tables, each value with a row that a note can quote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costlab.publish import page
from costlab.publish.figures.figures import FIGURES, FOLDER
from costlab.publish.results_tables import TABLES
from costlab.publish.tabulated import Table
from costlab.record import quantity
from costlab.record.disturbed import said
from costlab.record.result import Metric, Result, Section, load
from costlab.record.whose import OWNERS, WHOSE
from costlab.record.whose import whose as belongs
from costlab.record.words import words
from costlab.sections import beside_sweep

STEM = "RESULTS"
REFERENCE = "results/reference.json"

TITLE = words("results.title")
INTRO = words("results.intro")
SECTIONS = {
    "collectives": words("results.sections-collectives"),
    "fit": words("results.sections-fit"),
    "tp": words("results.sections-tp"),
    "fsdp": words("results.sections-fsdp"),
    "pipeline": words("results.sections-pipeline"),
    "one-gpu": words("results.sections-one-gpu"),
    "counts": words("results.sections-counts"),
}
NOTES = {
    "collectives": words("results.notes-collectives"),
    "fit": words("results.notes-fit"),
    "tp": words("results.notes-tp"),
    "fsdp": words("results.notes-fsdp"),
    "one-gpu": words("results.notes-one-gpu"),
}
# What a run's provenance calls things, for readers of Spanish.
FACTS = {
    "date": "fecha", "command": "orden", "seed": "semilla", "device": "dispositivo",
    "backend": "backend", "launcher": "lanzador", "processor": "procesador", "cores": "núcleos",
    "cores-online": "núcleos en línea", "pinning": "fijación de núcleos",
    "memory-bytes": "bytes de memoria", "load-before": "carga previa", "system": "sistema",
    "resumed": "reanudado",
    "commit": "commit", "clean": "árbol limpio", "gpus": "GPU", "links": "enlaces",
    "driver": "controlador",
}  # fmt: skip
MACHINE = words("results.machine")
PARTIAL = words("results.partial")
RULE, BENCH = words("rule.rule"), words("rule.bench")
REST = words("results.rest")
VALUE = words("results.value")
SPREAD = words("results.spread")
N = "n"
HOW = words("results.how")
METRIC = words("results.metric")
# Drawn, each span of it, and not quoted.
_DRAWN = "timeline"


def write(lab: Path) -> list[Path]:
    """Write the page in every language beside `lab`/results/reference.json, whose figures stand.

    Raises:
        ResultError: there is no such result, or it can't be read.
    """
    result = load(lab / REFERENCE)
    paths = []
    for language in page.LANGUAGES:
        path = lab / page.name(STEM, language)
        path.write_text(text(result, lab, language), "utf-8")
        paths.append(path)
    return paths


def text(result: Result, lab: Path, language: str) -> str:
    """Return the page.

    Args:
        result: what `lab`/results/reference.json holds.
        lab: the folder; figures that are there are shown and, like the result, named by SHA-256.
        language: "en" or "es".
    """
    drawn = [stem for stem in FIGURES if (lab / FOLDER / f"{stem}-light.svg").is_file()]
    files = [f"{FOLDER}/{stem}-{shade}.svg" for stem in drawn for shade in ("light", "dark")]
    lines = page.head(TITLE.of(language), lab, [REFERENCE, *files])
    lines += [
        INTRO.of(language),
        "",
        WHOSE.of(language),
        "",
        RULE.of(language).format(page=BENCH.of(language)),
        "",
    ]
    lines += [f"## {MACHINE.of(language)}", "", *_machine(result, language)]
    left = {
        name: metric for name, metric in result.metrics().items() if metric.name.topic != _DRAWN
    }
    for section, title in SECTIONS.items():
        body: list[str] = []
        for stem, one in FIGURES.items():
            if one.section == section and stem in drawn:
                body += page.figure(FOLDER, stem, one.alternative.of(language))
                body += [one.caption.of(language), ""]
        for table in TABLES:
            if table.section == section:
                body += _table(table, left, result, language)
        if body:
            note = [NOTES[section].of(language), ""] if section in NOTES else []
            course = _course(result, section, language)
            lines += [f"## {title.of(language)}", "", *course, *note, *body]
    if left:
        found = [([f"`{one.id}`"], one) for one in left.values()]
        body = _rows([METRIC.of(language)], "<", found, language)
        lines += page.folded(REST.of(language), body)
    return page.sealed(lines)


def _machine(result: Result, language: str) -> list[str]:
    said = words("results.of-the-run").of(language)
    spanish = language != page.LANGUAGES[0]
    rows = [
        (
            FACTS.get(key, key) if spanish else key,
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value}",
        )
        for key, value in result.provenance.items()
    ]
    return page.table([said, VALUE.of(language)], "<<", rows)


def _course(result: Result, section: str, language: str) -> list[str]:
    found = result.sections.get(section, Section(status="complete"))
    lines = []
    if found.status != "complete":
        lines += [PARTIAL.of(language).format(note=found.note), ""]
    if found.load:
        line = f"{said(found.load).of(language)}."
        lines += [f"**{line}**" if found.load.spoiled else line, ""]
    return lines


def _table(table: Table, left: dict[str, Metric], result: Result, language: str) -> list[str]:
    """Return a table's lines, and take its metrics from `left`."""
    found = table.rows(left.values())
    if not found:
        return []
    metrics = result.metrics()
    for metric in found:
        del left[metric.id]
    cells = [([one.cell(metric, metrics) for one in table.columns], metric) for metric in found]
    titles = [column.title.of(language) for column in table.columns]
    align = "".join("<" if column.fields else ">" for column in table.columns)
    body = _rows(titles, align, cells, language)
    if table.swept and (said := beside_sweep.said(metrics, table.section, language)):
        body += [said, ""]
    title = table.title.of(language)
    return page.folded(title, body) if table.folded else [f"### {title}", "", *body]


def _rows(
    titles: Sequence[str], align: str, found: Sequence[tuple[Sequence[str], Metric]],
    language: str,
) -> list[str]:  # fmt: skip
    """Return a table: given cells, whose each number is, the number, its spread, how it was had."""
    whose = [belongs(one) for _, one in found]
    kept = [place for place in range(len(OWNERS)) if any(cells[place] for cells in whose)]
    columns = [*titles, *(OWNERS[place].of(language) for place in kept)]
    columns += [VALUE.of(language), SPREAD.of(language), N, HOW.of(language)]
    align += "<" * len(kept) + ">>><"
    rows = [
        _row([*cells, *(mine[place] for place in kept)], metric, language)
        for (cells, metric), mine in zip(found, whose, strict=True)
    ]
    return page.table(columns, align, rows)


def _row(cells: Sequence[str], metric: Metric, language: str) -> list[str]:
    anchor = f'<a id="{page.row_of(metric.id)}"></a>'
    value = f"{anchor}**{quantity.shown(metric)}**"
    spread, count = quantity.spread(metric), quantity.count(metric)
    return [*cells, value, spread, count, page.how(metric, language)]
