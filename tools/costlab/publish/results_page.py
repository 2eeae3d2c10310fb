"""RESULTS.md and RESULTS.es.md: a result as tables, each value with a row that a note can quote."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from costlab.publish import downloads, headlines, page
from costlab.publish.figures.figures import FIGURES, FOLDER, named
from costlab.publish.tabulated import COLUMNS, TABLES, Table, said_of
from costlab.record import quantity
from costlab.record.foreign_load import said
from costlab.record.result import Metric, Result, Section, load
from costlab.record.whose import OWNERS
from costlab.record.whose import whose as belongs
from costlab.record.words import say, texts
from costlab.sections import beside_sweep

STEM = "RESULTS"
REFERENCE = "results/reference.json"

SECTIONS = texts("sections")
NOTES = texts("notes")
FACTS = texts("facts")
FIELDS = texts("fields")
HOW = texts("how")
# Drawn, each span of it, and not quoted.
_DRAWN = "timeline"


def write(lab: Path, source: str = REFERENCE) -> list[Path]:
    """Write the page of `lab`/`source` in every language into `lab`, whose figures stand.

    Raises:
        ResultError: there is no such result, or it can't be read.
    """
    result = load(lab / source)
    downloads.write(lab, source)
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
    left = {
        name: metric for name, metric in result.metrics().items() if metric.name.topic != _DRAWN
    }
    sections = [_section(section, result, left, drawn, language) for section in SECTIONS]
    found = [([f"`{one.id}`"], one) for one in left.values()]
    rest = _rows([say("results.metric", language)], "<", found, language) if left else ""
    return page.rendered(
        "results", lab, [source, *files], language,
        headlines=headlines.text(result.metrics(), language),
        download=say("results.download", language).format(csv=downloads.name(source), json=source),
        machine=page.folded(say("results.machine", language), _machine(result, language)),
        sections=[one for one in sections if one["figures"] or one["tables"]],
        rest=page.folded(say("results.rest", language), rest) if rest else "",
    )  # fmt: skip


def _section(
    section: str, result: Result, left: dict[str, Metric], drawn: Sequence[str], language: str
) -> dict[str, Any]:
    """Return what the template shows of a section, its metrics taken from `left`."""
    note = [NOTES[section].of(language)] if section in NOTES else []
    tables = [_table(one, left, result, language) for one in TABLES if one.section == section]
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
            for stem, one in FIGURES.items()
            if one.section == section and stem in drawn
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
    found = result.sections.get(section, Section(status="complete"))
    lines = []
    if found.status != "complete":
        lines.append(say("results.partial", language).format(note=found.note))
    if found.load:
        line = f"{said(found.load).of(language)}."
        lines.append(f"**{line}**" if found.load.spoiled else line)
    return lines


def _table(table: Table, left: dict[str, Metric], result: Result, language: str) -> str:
    """Return a table under its title, and take its metrics from `left`."""
    found = table.rows(left.values())
    if not found:
        return ""
    metrics = result.metrics()
    for metric in found:
        del left[metric.id]
    columns = [COLUMNS[name] for name in table.columns]
    cells = [([one.cell(metric, metrics) for one in columns], metric) for metric in found]
    titles = [one.title.of(language) for one in columns]
    align = "".join("<" if one.fields else ">" for one in columns)
    body = _rows(titles, align, cells, language)
    if table.swept and (said := beside_sweep.said(metrics, table.section, language)):
        body += f"\n{said}\n"
    title = table.title.of(language)
    if table.across:
        every = page.folded(say("results.every", language).format(title=title), body)
        return f"### {title}\n\n{_across(table, found, language)}\n{every}"
    return f"### {title}\n\n{body}" if table.open else page.folded(title, body)


def _across(table: Table, found: Sequence[Metric], language: str) -> str:
    """Return a table of a column for each value of a field; each number leads to its row.

    What is the same in every row is said once, above it.
    """
    values = sorted({getattr(one.name, table.across) for one in found})
    rest = [field for field in table.by.split() if field != table.across]
    kept = [field for field in rest if any(getattr(one.name, field) for one in found)]
    each = {field: {said_of(one.name, field) for one in found} for field in kept}
    alike = [field for field in kept if len(kept) > 1 and len(each[field]) == 1]
    above = _once([f"{FIELDS[field].of(language)} {min(each[field])}" for field in alike], language)
    kept = [field for field in kept if field not in alike]
    rows: dict[tuple[str, ...], dict[int, str]] = {}
    for one in found:
        key = tuple(said_of(one.name, field) for field in kept)
        rows.setdefault(key, {})[getattr(one.name, table.across)] = headlines.linked(one)
    titles = [FIELDS[field].of(language) for field in kept]
    columns = [*titles, *(f"{FIELDS[table.across].of(language)} {value}" for value in values)]
    cells = [[*key, *(row.get(value, "") for value in values)] for key, row in rows.items()]
    return above + page.table(columns, "<" * len(kept) + ">" * len(values), cells)


def _rows(
    titles: Sequence[str], align: str, found: Sequence[tuple[Sequence[str], Metric]],
    language: str,
) -> str:  # fmt: skip
    """Return a table: given cells, whose each number is, the number, its spread, how it was had.

    What is the same in every row is said once, above it.
    """
    whose = [belongs(one) for _, one in found]
    kept = [place for place in range(len(OWNERS)) if any(cells[place] for cells in whose)]
    columns = [*titles, *(OWNERS[place].of(language) for place in kept)]
    columns += [
        say("results.value", language), say("results.spread", language), "n",
        say("results.how", language),
    ]  # fmt: skip
    align += "<" * len(kept) + ">>><"
    rows = [
        _row([*cells, *(mine[place] for place in kept)], metric, language)
        for (cells, metric), mine in zip(found, whose, strict=True)
    ]
    alike = [len(rows) > 1 and len(set(column)) == 1 for column in zip(*rows, strict=True)]
    titled = [*(f"{title} " for title in columns[:-1]), ""]  # how it was had needs no title
    same = [title + cell for title, cell in compress(zip(titled, rows[0], strict=True), alike)]
    once = [said for said in same if not said.endswith((" ", "–"))]
    above = _once(once, language)
    differ = [not one for one in alike]
    columns, sides, *rows = [[*compress(row, differ)] for row in (columns, align, *rows)]
    return above + page.table(columns, "".join(sides), rows)


def _once(said: Sequence[str], language: str) -> str:
    """Return the line above a table for what all its rows share, if they share anything."""
    return f"{say('results.every-row', language).format(said=', '.join(said))}\n\n" if said else ""


def _row(cells: Sequence[str], metric: Metric, language: str) -> list[str]:
    anchor = f'<a id="{page.row_of(metric.id)}"></a>'
    value = f"{anchor}**{quantity.shown(metric)}**"
    spread, count = quantity.spread(metric), quantity.count(metric)
    return [*cells, value, spread, count, HOW[metric.how].of(language)]
