"""RESULTS.md and RESULTS.es.md: a result as tables, each value with a row that a note can quote."""

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from costlab.publish import page
from costlab.publish.figures.figures import FIGURES, FOLDER, named
from costlab.publish.results_tables import COLUMNS, TABLES, Table, format_fields
from costlab.record import quantity
from costlab.record.noise import describe
from costlab.record.quantity import OWNERS
from costlab.record.quantity import attribute as belongs
from costlab.record.result import Metric, Result, Section, load
from costlab.record.words import say, texts
from costlab.sections import sweep_check

STEM = "RESULTS"
REFERENCE = "results/reference.json"

SECTIONS = texts("sections")
NOTES = texts("notes")
FACTS = texts("facts")
FIELDS = texts("fields")
HOW = texts("how")
_METRIC = re.compile(r"\{([\w.-]+)\}")
# Drawn, each span of it, and not quoted.
_DRAWN = "timeline"


def write(lab: Path, source: str = REFERENCE) -> list[Path]:
    """Write the page of `lab`/`source` in every language into `lab`, whose figures stand.

    Raises:
        ResultError: there is no such result, or it can't be read.
    """
    result = load(lab / source)
    page.write_csv(lab, source)
    return page.write(lab, STEM, lambda language: text(result, lab, language, source))


def text(result: Result, lab: Path, language: str, source: str = REFERENCE) -> str:
    """Return the page.

    Args:
        result: what `lab`/`source` holds.
        lab: the folder; figures that are there are shown and, like the result, named by SHA-256.
        language: "en" or "es".
        source: the result's file, from the lab.
    """
    drawn = [stem for stem in FIGURES if (lab / FOLDER / f"{stem}-light.svg").is_file()]
    stems = [named(stem, language) for stem in drawn]
    files = [f"{FOLDER}/{stem}-{shade}.svg" for stem in stems for shade in ("light", "dark")]
    remaining = {
        name: metric for name, metric in result.metrics().items() if metric.name.topic != _DRAWN
    }
    sections = [_section(section, result, remaining, drawn, language) for section in SECTIONS]
    labelled = [([f"`{metric.id}`"], metric) for metric in remaining.values()]
    rest = _rows([say("results.metric", language)], "<", labelled, language) if remaining else ""
    return page.rendered(
        "results", lab, [source, page.csv_name(source), *files], language,
        headlines=_headlines(result.metrics(), language),
        download=say("results.download", language).format(csv=page.csv_name(source), json=source),
        machine=page.folded(say("results.machine", language), _machine(result, language)),
        sections=[metric for metric in sections if metric["figures"] or metric["tables"]],
        rest=page.folded(say("results.rest", language), rest) if rest else "",
    )  # fmt: skip


def _section(
    section: str, result: Result, remaining: dict[str, Metric], drawn: Sequence[str], language: str
) -> dict[str, Any]:
    """Return what the template shows of a section, its metrics taken from `left`."""
    note = [NOTES[section].of(language)] if section in NOTES else []
    tables = [
        _table(table, remaining, result, language)
        for item in TABLES
        if item.section == section
        for table in item.split(remaining.values())
    ]
    return {
        "title": SECTIONS[section].of(language),
        "said": [*_course(result, section, language), *note],
        "tables": [table for table in tables if table],
        "figures": [
            {
                "stem": f"{FOLDER}/{named(stem, language)}",
                "alternative": texts("alternatives")[stem].of(language),
                "caption": texts("captions")[stem].of(language),
            }
            for stem, item in FIGURES.items()
            if item.section == section and stem in drawn
        ],
    }


def _machine(result: Result, language: str) -> str:
    rows = [
        (
            FACTS[key].of(language) if key in FACTS else key,
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value}",
        )
        for key, value in result.provenance.items()
    ]
    return page.table(
        [say("results.of-the-run", language), say("results.value", language)], "<<", rows
    )


def _course(result: Result, section: str, language: str) -> list[str]:
    course = result.sections.get(section, Section(status="complete"))
    lines = []
    if course.status == "partial":
        lines.append(say("results.partial", language).format(note=course.note))
    if course.load:
        line = f"{describe(course.load).of(language)}."
        doubtful = course.load.spoiled or course.load.cut_short
        lines.append(f"**{line}**" if doubtful else line)
    return lines


def _table(table: Table, remaining: dict[str, Metric], result: Result, language: str) -> str:
    """Return a table under its title, and take its metrics from `left`."""
    metrics_of_table = table.rows(remaining.values())
    if not metrics_of_table:
        return ""
    metrics = result.metrics()
    for metric in metrics_of_table:
        del remaining[metric.id]
    title = table.title.of(language)
    if table.places:
        return page.folded(title, _across(table, metrics_of_table, language))
    columns = [COLUMNS[name] for name in table.columns]
    cells = [
        ([column.cell(metric, metrics) for column in columns], metric)
        for metric in metrics_of_table
    ]
    titles = [column.title.of(language) for column in columns]
    align = "".join("<" if column.fields else ">" for column in columns)
    body = _rows(titles, align, cells, language)
    if table.swept and (sentence := sweep_check.describe(metrics, table.section, language)):
        body += f"\n{sentence}\n"
    if table.across:
        every = page.folded(say("results.every", language).format(title=title), body)
        return f"### {title}\n\n{_across(table, metrics_of_table, language)}\n{every}"
    return f"### {title}\n\n{body}" if table.open else page.folded(title, body)


def _across(table: Table, metrics: Sequence[Metric], language: str) -> str:
    """Return a table of a column for each value of the fields `across`.

    Each number leads to its row, or is itself the place that links lead to. What is the same in
    every row is said once, above it.
    """
    across = table.across.split()
    values = sorted({tuple(getattr(metric.name, field) for field in across) for metric in metrics})
    rest = [field for field in table.by.split() if field not in across]
    fields = [field for field in rest if any(getattr(metric.name, field) for metric in metrics)]
    each = {field: {format_fields(metric.name, field) for metric in metrics} for field in fields}
    alike = [field for field in fields if len(fields) > 1 and len(each[field]) == 1]
    shared = [f"{FIELDS[field].of(language)} {min(each[field])}" for field in alike]
    owners: dict[tuple[str | int, ...], str] = {}
    if table.places:  # its cells have no rows that say whose they are: the column's title does
        owners = {
            tuple(getattr(metric.name, field) for field in across): belongs(metric).code
            for metric in metrics
        }
        devices = {belongs(metric).device for metric in metrics}
        shared += [f"{OWNERS[2].of(language)} {min(devices)}"] if len(devices) == 1 else []
    above = _once(shared, language)
    fields = [field for field in fields if field not in alike]
    rows: dict[tuple[str, ...], dict[tuple[str | int, ...], str]] = {}
    for metric in metrics:
        key = tuple(format_fields(metric.name, field) for field in fields)
        value = tuple(getattr(metric.name, field) for field in across)
        rows.setdefault(key, {})[value] = _linked(metric, place=table.places)
    titles = [FIELDS[field].of(language) for field in fields]
    columns = [*titles, *(_title(across, value, language, owners.get(value)) for value in values)]
    cells = [[*key, *(row.get(value, "") for value in values)] for key, row in rows.items()]
    return above + page.table(columns, "<" * len(fields) + ">" * len(values), cells)


def _title(
    fields: Sequence[str], values: Sequence[str | int], language: str, owner: str | None = None
) -> str:
    """Return a column's title: "hidden 128", "torch, gloo, blocking"."""
    title = ", ".join([*([owner] if owner else []), *map(str, values)])
    return f"{FIELDS[fields[0]].of(language)} {title}" if len(fields) == 1 else title


def _rows(
    titles: Sequence[str], align: str, labelled: Sequence[tuple[Sequence[str], Metric]],
    language: str,
) -> str:  # fmt: skip
    """Return a table: given cells, whose each number is, the number, its spread, how it was had.

    What is the same in every row is said once, above it.
    """
    attributions = [belongs(value) for _, value in labelled]
    shown_owners = [
        place for place in range(len(OWNERS)) if any(cells[place] for cells in attributions)
    ]
    columns = [*titles, *(OWNERS[place].of(language) for place in shown_owners)]
    columns += [
        say("results.value", language), say("results.spread", language), "n",
        say("results.how", language),
    ]  # fmt: skip
    align += "<" * len(shown_owners) + ">>><"
    rows = [
        _row([*cells, *(attribution[place] for place in shown_owners)], metric, language)
        for (cells, metric), attribution in zip(labelled, attributions, strict=True)
    ]
    alike = [len(rows) > 1 and len(set(column)) == 1 for column in zip(*rows, strict=True)]
    titled = [*(f"{title} " for title in columns[:-1]), ""]  # how it was had needs no title
    same = [title + cell for title, cell in compress(zip(titled, rows[0], strict=True), alike)]
    once = [shared_value for shared_value in same if not shared_value.endswith((" ", "–"))]
    above = _once(once, language)
    differ = [not value for value in alike]
    columns, sides, *rows = [[*compress(row, differ)] for row in (columns, align, *rows)]
    return above + page.table(columns, "".join(sides), rows)


def _once(shared_values: Sequence[str], language: str) -> str:
    """Return the line above a table for what all its rows share, if they share anything."""
    return (
        f"{say('results.every-row', language).format(said=', '.join(shared_values))}\n\n"
        if shared_values
        else ""
    )


def _row(cells: Sequence[str], metric: Metric, language: str) -> list[str]:
    anchor = f'<a id="{page.row_of(metric.id)}"></a>'
    value = f"{anchor}**{quantity.format_metric(metric)}**"
    spread, count = quantity.spread(metric), quantity.count(metric)
    return [*cells, value, spread, count, HOW[metric.how].of(language)]


def _headlines(metrics: Mapping[str, Metric], language: str) -> str:
    """Return what came out on top as a list, each number with its interval and its row; or nothing.

    words.toml has one line a headline, with a metric's id in braces where its value goes. A line
    whose metrics a run hasn't is left out.
    """
    lines = (headline.of(language) for headline in texts("headlines").values())
    return "".join(
        f"- {_METRIC.sub(lambda match: _linked(metrics[match[1]]), line)}\n"
        for line in lines
        if all(name in metrics for name in _METRIC.findall(line))
    )


def _linked(metric: Metric, *, place: bool = False) -> str:
    """Return a value that leads to its row, and its interval where it has one.

    Args:
        metric: what is shown.
        place: the value leads nowhere: links to its row lead here.
    """
    row, value = page.row_of(metric.id), quantity.format_metric(metric)
    shown = f'<a id="{row}"></a>{value}' if place else f"[{value}](#{row})"
    spread = quantity.spread(metric)
    return f"{shown} ({spread})" if spread else shown
