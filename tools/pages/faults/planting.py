"""A copy of the real lab, and every way to make a citation of it wrong, planted and counted."""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.relock import relock
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.check import check_labs
from notelab.cited.nearest_range import ends_well
from notelab.cited.outline import FUNCTION
from notelab.lab import lock as lock_file
from notelab.page.citation import Citation, Span, format_citation
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


Plant = tuple[Mutation, set[str]]


class Sources:
    """The cited files of the real lab, from which faults are made.

    Attributes:
        functions: the heads of the other functions of a citation's file, by the citation's key.
    """

    def __init__(self, book: Book) -> None:
        """Read every page and every cited file once."""
        workbook = book.open()
        self._files = {
            file.path: file for file in workbook.evidence.list_files() if file.state is State.PROVED
        }
        self._named: dict[str, set[str]] = {}
        cited: dict[str, Citation] = {}
        for view in workbook.views:
            for block in view.note.blocks if view.note else []:
                for citation in block.citations:
                    self._named.setdefault(citation.text, set()).update(block.names)
                    cited[citation.key] = citation
        self.functions = {
            key: list(self._other_functions(citation))
            for key, citation in cited.items()
            if not citation.path.startswith(OUTSIDE_THE_WHEELS)
        }

    def file(self, citation: Citation) -> CitedFile:
        """Return the file that a citation names."""
        return self._files[citation.path]

    def shifted(self, citation: Citation, by: int) -> str | None:
        """Return the range moved by some lines, or None if it would begin before the file."""
        if citation.first + by < 1:
            return None
        return format_citation(citation.path, citation.first + by, citation.last + by)

    def other_file(self, citation: Citation) -> str | None:
        """Return the same lines of another file of the same source, or None if there is none."""
        cited_file = self.file(citation)
        paths = [
            f.path
            for f in self._files.values()
            if f.source == cited_file.source and f != cited_file
        ]
        if not paths:
            return None
        return format_citation(sorted(paths)[0], citation.first, citation.last)

    def other_function(self, citation: Citation, index: int) -> str | None:
        """Return the head of the `index`-th other function of the file; None if there are fewer."""
        functions = self.functions[citation.key]
        return functions[index] if index < len(functions) else None

    def _other_functions(self, citation: Citation) -> Iterator[str]:
        """Yield the head of each other function of the file, a range that is sound in itself.

        A function that the text names in code font is left out: the text is about it, so a citation
        of it would not be wrong.
        """
        outline = self.file(citation).outline
        assert outline is not None
        cited_symbol = outline.innermost(citation.first, citation.last)
        for symbol in outline.symbols:
            is_apart = symbol.last < citation.first or symbol.top > citation.last
            is_named = symbol.name.rpartition(".")[2] in self._named[citation.text]
            if symbol.kind != FUNCTION or not is_apart or is_named or symbol == cited_symbol:
                continue
            length = max(citation.last - citation.first, symbol.line - symbol.top + 1)
            ends = [
                line
                for line in range(symbol.line + 1, min(symbol.top + length, symbol.last) + 1)
                if ends_well(outline, line)
            ]
            if ends:
                yield format_citation(citation.path, symbol.top, ends[-1])

    def straddling(self, citation: Citation) -> str | None:
        """Return a range from the last line of one function into the first line of the next."""
        outline = self.file(citation).outline
        assert outline is not None
        tops = [s for s in outline.symbols if s.kind == FUNCTION and s.parent == -1]
        for function, next_function in itertools.pairwise(tops):
            if next_function.top > citation.first and next_function.line - function.last < 30:
                return format_citation(citation.path, function.last, next_function.line)
        return None

    def past_the_end(self, citation: Citation) -> str:
        """Return the lines just after the last line."""
        count = len(self.file(citation).lines)
        return format_citation(citation.path, count, count + 2)


def plants(book: Book) -> dict[str, dict[str, Plant]]:
    """Return every kind of fault, and for each kind every way to plant it in all citations at once.

    A way is a mutation and the codes that are right for it.
    """
    sources = Sources(book)

    def shifts(sizes: range) -> dict[str, Plant]:
        both = [by for size in sizes for by in (-size, size)]
        return {f"{by:+d}": (partial(sources.shifted, by=by), RANGE_CODES) for by in both}

    return {
        "shifted by 1 to 4 lines": shifts(range(1, 5)),
        "shifted by 5 to 50 lines": shifts(range(5, 51)),
        "pointing at another function": {
            str(index): (partial(sources.other_function, index=index), RANGE_CODES)
            for index in range(max(map(len, sources.functions.values())))
        },
        "pointing into another file": {"": (sources.other_file, RANGE_CODES)},
        "past the end of the file": {"": (sources.past_the_end, {"N205"})},
        "reversed": {"": (lambda c: format_citation(c.path, c.last + 1, c.first), {"N202"})},
        "straddling two functions": {"": (sources.straddling, {"N207"})},
        "too wide": {
            "": (lambda c: format_citation(c.path, c.first, c.first + 40), {"N205", "N206"})
        },
    }
