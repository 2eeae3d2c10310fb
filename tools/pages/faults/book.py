"""A copy of the real lab, in which faults are planted and counted."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from notelab.book.relock import relock
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.check import check_labs
from notelab.lab import lock as lock_file
from notelab.page.citation import Citation, Span
from notelab.page.citation_syntax import looks_like_citation, parse
from notelab.report.outcome import Report
from pages.blocks import ROOT

LAB = Path("experiments/35-reading-notes")
RESULTS = Path("experiments/35-allreduce-costs")
# No wheel holds these files, so without git they are checked against the lock only. They are left
# out, because the table must be the same everywhere.
OUTSIDE_THE_WHEELS = ("megatron/training/",)
Mutation = Callable[[Citation], str | None]
_CODE_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass
class Book:
    """A copy of the real lab, in which faults are planted."""

    root: Path
    bench: CheckSession

    @property
    def lab(self) -> Path:
        """The lab's folder in the copy."""
        return self.root / LAB

    def pages(self) -> list[Path]:
        """Every page of the lab, in both languages."""
        notes = [*self.lab.glob("*.md"), *(self.root / "solutions").glob("03-*.md")]
        return sorted(notes)

    def open(self) -> Workbook:
        """Open the copy."""
        return open_lab(self.lab, self.bench)

    def check(self, only: set[Path] | None = None) -> Report:
        """Check the copy, or some of its pages."""
        return check_labs({self.lab: only}, self.bench)

    def lock(self) -> None:
        """Write the copy's lock from its pages."""
        relocked = relock(self.open())
        (self.lab / "citations.lock").write_text(lock_file.dump(relocked.lock), "utf-8")

    def restore(self) -> None:
        """Undo every fault."""
        for folder in (LAB, Path("solutions")):
            shutil.rmtree(self.root / folder, ignore_errors=True)
            shutil.copytree(ROOT / folder, self.root / folder)


def copy_of_the_lab(root: Path, bench: CheckSession) -> Book:
    """Copy the real lab and its solutions into a repository of their own."""
    book = Book(root, bench)
    (root / ".git").mkdir(parents=True)
    # The notes quote its rows, and it must match its inputs.
    shutil.copytree(ROOT / RESULTS, root / RESULTS, ignore=shutil.ignore_patterns("local"))
    book.restore()
    return book


def rewrite_citations(text: str, new: Mutation) -> tuple[str, dict[str, str]]:
    """Replace each citation of a page; return the page, and each old text with the new one."""
    changed: dict[str, str] = {}

    def swap(match: re.Match[str]) -> str:
        code = match[1]
        if not looks_like_citation(code):
            return match[0]
        replaced = new(parse(code, Span(1, 1, 1, 1)))
        if replaced is None or replaced == code:
            return match[0]
        changed[code] = replaced
        return f"`{replaced}`"

    return _CODE_SPAN.sub(swap, text), changed


class Tally(msgspec.Struct):
    """How many planted faults were caught, for one kind of page."""

    planted: int = 0
    missed: list[str] = []

    @property
    def rate(self) -> float:
        """The share of faults that were caught."""
        return 1 - len(self.missed) / self.planted if self.planted else 1.0

    def add(self, tally: "Tally") -> None:
        """Add the counts of another tally."""
        self.planted += tally.planted
        self.missed += tally.missed


_STORED_NAMES = {
    "with_lock": "kept",
    "relocked_in_notes": "anew_in_notes",
    "relocked_in_reference": "anew_in_reference",
}


class Row(msgspec.Struct, rename=_STORED_NAMES):
    """Faults of one kind: caught with the lock in place, and with a lock of the faulty pages.

    The stored names are those of docs/measured/promise.json.
    """

    with_lock: Tally = msgspec.field(default_factory=Tally)
    relocked_in_notes: Tally = msgspec.field(default_factory=Tally)
    relocked_in_reference: Tally = msgspec.field(default_factory=Tally)

    def add(self, row: "Row") -> None:
        """Add the counts of another row."""
        self.with_lock.add(row.with_lock)
        self.relocked_in_notes.add(row.relocked_in_notes)
        self.relocked_in_reference.add(row.relocked_in_reference)


RANGE_CODES = {"N201", "N202", "N203", "N205", "N206", "N207", "N208", "N209", "N215"}
LOCK_CODES = {"N210", "N211", "N212", "N213", "N214"}


def find_missed(
    report: Report, changed: dict[str, str], wanted: set[str], path: Path, text: str
) -> list[str]:
    """Return the citations at whose position there is no finding with a wanted code.

    `text` is the page as it was checked. A finding counts for the citation that its span covers.
    """
    lines = text.split("\n")
    flagged = {
        lines[finding.span.row - 1][finding.span.column - 1 : finding.span.end_column - 1]
        for finding in report.findings
        if finding.code in wanted and finding.filename.endswith(f"/{path.name}")
    }
    return [old for old, new in changed.items() if f"`{new}`" not in flagged]


def plant(book: Book, new: Mutation, wanted: set[str]) -> Row:
    """Replace every citation of every page, in both languages at once, and count what is caught."""
    row = Row()

    def mutate(citation: Citation) -> str | None:
        return None if citation.path.startswith(OUTSIDE_THE_WHEELS) else new(citation)

    originals = {path: path.read_text("utf-8") for path in book.pages()}
    planted: dict[Path, tuple[str, dict[str, str]]] = {}
    for path, text in originals.items():
        planted[path] = rewrite_citations(text, mutate)
        path.write_text(planted[path][0], "utf-8")
    report_with_lock = book.check()
    book.lock()
    report_relocked = book.check()
    book.restore()
    for path, (text, changed) in planted.items():
        tally = row.relocked_in_reference if path.name.startswith("03-") else row.relocked_in_notes
        tally.add(Tally(len(changed), find_missed(report_relocked, changed, wanted, path, text)))
        # All citations change at once, so one may become another that the lock knows. A real fault
        # comes alone, so each fault that seems missed is planted again, alone.
        alone = find_missed(report_with_lock, changed, wanted | LOCK_CODES, path, text)
        still = [old for old in alone if not caught_alone(book, path, old, changed[old])]
        row.with_lock.add(Tally(len(changed), still))
    return row


def caught_alone(book: Book, path: Path, old: str, new: str) -> bool:
    """Plant one fault, in a page and its translation; return whether the lock catches it."""
    stem = path.name.removesuffix(".md").removesuffix(".es")
    for page in (path.with_name(f"{stem}.md"), path.with_name(f"{stem}.es.md")):
        text = page.read_text("utf-8")
        page.write_text(
            rewrite_citations(text, lambda c: new if c.text == old else None)[0], "utf-8"
        )
    codes = {finding.code for finding in book.check().findings}
    book.restore()
    return bool(codes & (RANGE_CODES | LOCK_CODES))
