"""Everything that is generated from a lab's reference, making a run that reference, and quotes.

A number that a page quotes is a link to its row of RESULTS; its text must be the value in the
result's CSV (N402). A new reference changes values, so the links' texts are rewritten here. Whether
a sentence is still true is its author's to say: the changes are listed to be read.
"""

import csv
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from costlab.judge import claims_file
from costlab.publish import claims_page, results_page
from costlab.publish.figures import figures
from costlab.publish.page import LANGUAGES, csv_name, name, row_of
from costlab.record.result import Result, ResultError, load, save
from costlab.sections import plan


def generate(lab: Path) -> list[Path]:
    """Write figures, RESULTS and CLAIMS in both languages; return the files.

    Args:
        lab: the folder that holds results/reference.json and claims.toml.

    Raises:
        ResultError, ClaimsError: an input can't be read; nothing is half written.
    """
    claims_file.load(lab / claims_page.CLAIMS)  # before anything is replaced
    drawn = figures.write(load(lab / results_page.REFERENCE), lab)
    return [*drawn, *results_page.write(lab), *claims_page.write(lab)]


def adopt(file: Path, lab: Path) -> list[Path]:
    """Copy a result to `lab`/results/reference.json and generate what is made from it.

    Raises:
        ResultError: the result can't be read, isn't the whole lab's, or can't be written.
        ClaimsError: the claims can't be read; the old reference stays.
    """
    result = load(file)
    if lacks := _lacking(result, file):
        raise ResultError(f"{file}: {'; '.join(lacks)}; a reference is whole: measure again")
    claims_file.load(lab / claims_page.CLAIMS)
    reference = lab / results_page.REFERENCE
    save(result, reference)
    return [reference, *generate(lab)]


def _lacking(result: Result, file: Path) -> list[str]:
    """Return what keeps a result from being what pages quote, a few words each."""
    present = result.sections
    lacks = [f"it has no section {name}" for name in plan.MODULES if name not in present]
    lacks += [f"{name} broke off: {part.note}" for name, part in present.items()
              if part.status == "partial"]  # fmt: skip
    lacks += [f"{name} was cut short when the time was up (`--resume {file}` measures the rest)"
              for name, part in present.items() if part.status == "cut"]  # fmt: skip
    return lacks + [
        f"{name} was measured on a busy machine" for name, part in present.items()
        if part.load and part.load.spoiled
    ]  # fmt: skip


def candidates(file: Path | None, local: Path) -> list[Path]:
    """Write RESULTS of a result of this machine's own into their folder; of no other, nothing.

    Raises:
        ResultError: the result can't be read.
    """
    if file is None or file.resolve().parent != local.resolve():
        return []
    written = results_page.write(local, file.name)
    for path in written:  # it lies two folders further down than the reference's page
        page = path.read_text("utf-8").replace("](../../docs/", "](../../../../docs/")
        path.write_text(page, "utf-8")
    return written


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
    table = lab / csv_name(results_page.REFERENCE)
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
