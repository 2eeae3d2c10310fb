"""What generated pages are made of: a template that names their inputs, tables, anchors, a CSV.

notelab holds every generated page to its inputs (N404) and every quoted value to its row (N401 and
N402), so the forms here are those that it reads. The CSV is a result as a table for other programs;
`shardbook check` reads the numbers that pages quote from its columns `id` and `formatted`.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from costlab.record import quantity
from costlab.record.quantity import Attribution, attribute
from costlab.record.result import load
from costlab.record.words import say

LANGUAGES = ("en", "es")


def name(stem: str, language: str) -> str:
    """Return a page's file name: RESULTS.md, RESULTS.es.md."""
    return f"{stem}.md" if language == LANGUAGES[0] else f"{stem}.{language}.md"


def write(lab: Path, stem: str, text: Callable[[str], str]) -> list[Path]:
    """Write a page's text in every language into the lab's folder; return the files."""
    paths = [lab / name(stem, language) for language in LANGUAGES]
    for path, language in zip(paths, LANGUAGES, strict=True):
        path.write_text(text(language), "utf-8")
    return paths


def rendered(stem: str, folder: Path, inputs: Iterable[str], language: str, **values: Any) -> str:
    """Return the page of a template, sealed: its own SHA-256 follows those of its inputs.

    Args:
        stem: of the template, in `templates/`.
        folder: where the inputs lie.
        inputs: the files that it is made from.
        language: of the words that the template says.
        given: what it shows.
    """
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    templates = Environment(  # noqa: S701  (Markdown, of our own numbers)
        loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    digests = {file: sha256((folder / file).read_bytes()).hexdigest() for file in inputs}
    markdown = templates.get_template(f"{stem}.md.jinja").render(
        values, inputs=digests, say=lambda name: say(name, language)
    )
    text = markdown.strip("\n") + "\n"
    before, mark, after = text.partition(" -->\n\n# ")
    seal = sha256(text.encode()).hexdigest()
    return f"{before} -->\n<!-- this page without this line sha256:{seal}{mark}{after}"


def row_of(metric: str) -> str:
    """Return the row's anchor: the metric's id, its dots as dashes."""
    return metric.replace(".", "-")


def table(columns: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; `align` has a `<` or a `>` for each column."""
    rules = ["---" if side == "<" else "--:" for side in align]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (columns, rules, *rows))


def folded(summary: str, body: str) -> str:
    """Return what a reader opens when wanted; on paper it stays folded."""
    return (
        f'<details class="rows" markdown="1">\n<summary>{summary}</summary>\n\n{body}\n</details>\n'
    )


FIELDS = ("id", "value", "unit", "low", "high", "samples", "how")
# What a collective's line has besides: its calls' launches, its speeds and its slow calls.
DETAILS = ("launches", "algbw", "busbw", "p95")


def csv_name(source: str) -> str:
    """Return the table's file, beside the result's.

    >>> csv_name("results/reference.json")
    'results/reference.csv'
    """
    return str(PurePosixPath(source).with_suffix(".csv"))


def write_csv(lab: Path, source: str) -> Path:
    """Write the table of `lab`/`source` beside it.

    Raises:
        ResultError: there is no such result, or it can't be read.
    """
    path = lab / csv_name(source)
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*FIELDS, *Attribution._fields, "formatted", *DETAILS])
        for metric in load(lab / source).metrics().values():
            fields = (getattr(metric, field) for field in FIELDS)
            details = (metric.detail.get(detail, "") for detail in DETAILS)
            formatted = quantity.format_metric(metric)
            lines.writerow([*fields, *attribute(metric), formatted, *details])
    return path
