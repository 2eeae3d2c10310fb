"""Numbers that pages quote from RESULTS, brought up to a new reference.

A quoted number is a link to its row; its text must be the value in the result's CSV (N402). A new
reference changes values, so the links' texts are rewritten here. Whether a sentence is still true
is its author's to say: the changes are listed to be read.
"""

import csv
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from costlab.publish import downloads, results_page
from costlab.publish.page import LANGUAGES, name, row_of

_QUOTE = re.compile(r"\[([^\[\]]*)\]\(([^()\s]*RESULTS(?:\.\w+)?\.md)#([\w.-]+)\)")


@dataclass(frozen=True)
class Change:
    """One quoted number that is another now, and where it stands (`line` from 1)."""

    page: Path
    line: int
    row: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} quotes {self.row}: {self.before}, now {self.after}"


def update(lab: Path, pages: list[Path]) -> list[Change]:
    """Rewrite what `pages` quote from `lab`'s RESULTS; return what changed.

    A link to a row that is gone is left as it is: `shardbook check` names it (N401).
    """
    table = lab / downloads.name(results_page.REFERENCE)
    with table.open(encoding="utf-8", newline="") as file:
        of_row = {row_of(line["id"]): line["formatted"] for line in csv.DictReader(file)}
    quoted = {(lab / name(results_page.STEM, language)).resolve() for language in LANGUAGES}
    changes: list[Change] = []
    for page in pages:
        text = page.read_text("utf-8")
        found: list[Change] = []
        written = _QUOTE.sub(partial(_now, page, quoted, of_row, found), text)
        if found:
            page.write_text(written, "utf-8")
            changes += found
    return changes


def _now(
    page: Path,
    quoted: set[Path],
    of_row: dict[str, str],
    changes: list[Change],
    quote: re.Match[str],
) -> str:
    """Return a link with its row's value; note where that is another."""
    before, target, row = quote.groups()
    value = of_row.get(row) if (page.parent / target).resolve() in quoted else None
    if value in (None, before):
        return quote[0]
    line = quote.string.count("\n", 0, quote.start()) + 1
    changes.append(Change(page, line, row, before, str(value)))
    return f"[{value}]({target}#{row})"
