"""What both generated pages are made of: a header that names their inputs, tables, rows' anchors.

notelab holds every generated page to its inputs (N404) and every quoted value to its row (N401 and
N402), so the forms here are those that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from costlab.record.result import Metric
from costlab.record.words import texts

LANGUAGES = ("en", "es")
HOW = texts("how")


def name(stem: str, language: str) -> str:
    """Return a page's file name: RESULTS.md, RESULTS.es.md."""
    return f"{stem}.md" if language == LANGUAGES[0] else f"{stem}.{language}.md"


def head(title: str, folder: Path, inputs: Iterable[str]) -> list[str]:
    """Return a page's first lines: its title, and the SHA-256 of each input in `folder`."""
    made = [
        f"<!-- generated from {one} sha256:{sha256((folder / one).read_bytes()).hexdigest()} -->"
        for one in inputs
    ]
    return ["---", f'title: "{title}"', "---", "", *made, "", f"# {title}", ""]


def sealed(lines: Iterable[str]) -> str:
    """Return a page's text, with its own SHA-256 in its first blank line after the inputs."""
    text = "\n".join(lines).rstrip("\n") + "\n"
    digest = sha256(text.encode()).hexdigest()
    before, mark, after = text.partition(" -->\n\n# ")
    return f"{before} -->\n<!-- this page without this line sha256:{digest}{mark}{after}"


def row_of(metric: str) -> str:
    """Return the row's anchor: the metric's id, its dots as dashes."""
    return metric.replace(".", "-")


def table(columns: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; `align` has a `<` or a `>` for each column."""
    rules = ["---" if side == "<" else "--:" for side in align]
    return [f"| {' | '.join(cells)} |" for cells in (columns, rules, *rows)] + [""]


def figure(folder: str, stem: str, alternative: str) -> list[str]:
    """Return a figure in light and dark; the code host and the site show the one that fits."""
    return [
        f"![{alternative}]({folder}/{stem}-light.svg#gh-light-mode-only)",
        f"![{alternative}]({folder}/{stem}-dark.svg#gh-dark-mode-only)",
        "",
    ]


def folded(summary: str, lines: Iterable[str]) -> list[str]:
    """Return lines that a reader opens when wanted."""
    return ['<details markdown="1">', f"<summary>{summary}</summary>", "", *lines, "</details>", ""]


def how(metric: Metric, language: str) -> str:
    """Return how a value came about, in the language."""
    return HOW[metric.how].of(language)
