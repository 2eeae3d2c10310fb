"""Plants faults in the real notes, and counts which of them the checker catches.

`python -m tests.notelab.faults` (part of `make benchmark`) plants every fault in every citation,
stores what was caught in docs/measured/promise.json, and writes the table of
docs/reference/promise.md from it. The pins are fixed and nothing here is random, so the figures are
the same on every machine that has the sources. The tests plant a sample and compare.
"""

import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.relock import relock
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.cited.fitting import ends_well
from notelab.cited.outline import FUNCTION
from notelab.lab import lock as lock_file
from notelab.page.citation import Citation, Span, format_citation
from notelab.page.citation_syntax import looks_like_citation, parse
from notelab.report.outcome import Report
from tests.notelab.scratch import check_lab

ROOT = Path(__file__).resolve().parents[2]
LAB = Path("experiments/35-reading-notes")
RESULTS = Path("experiments/35-allreduce-costs")
# No wheel holds these files, so without git they are checked against the lock only. They are left
# out, because the table must be the same everywhere.
OUTSIDE_THE_WHEELS = ("megatron/training/",)
MEASURED = ROOT / "docs/measured/promise.json"
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
        return check_lab(self.lab, self.bench, only)

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


class Sources:
    """The cited files of the real lab, from which faults are made."""

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
        self._functions = {
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
        functions = self._functions[citation.key]
        return functions[index] if index < len(functions) else None

    def most_functions(self) -> int:
        """Return the greatest number of other functions in a file."""
        return max(map(len, self._functions.values()))

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

    def too_wide(self, citation: Citation) -> str | None:
        """Return a range of forty-one lines or more."""
        return format_citation(citation.path, citation.first, citation.first + 40)

    def past_the_end(self, citation: Citation) -> str:
        """Return the lines just after the last line."""
        count = len(self.file(citation).lines)
        return format_citation(citation.path, count, count + 2)


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
Measured = dict[str, dict[str, Row]]


def plants(book: Book) -> dict[str, dict[str, Plant]]:
    """Return every kind of fault, and for each kind every way to plant it in all citations at once.

    A way is a mutation and the codes that are right for it.
    """
    sources = Sources(book)

    def shifts(sizes: range) -> dict[str, Plant]:
        both = [by for size in sizes for by in (-size, size)]
        return {f"{by:+d}": (lambda c, by=by: sources.shifted(c, by), RANGE_CODES) for by in both}

    return {
        "shifted by 1 to 4 lines": shifts(range(1, 5)),
        "shifted by 5 to 50 lines": shifts(range(5, 51)),
        "pointing at another function": {
            str(index): (lambda c, i=index: sources.other_function(c, i), RANGE_CODES)
            for index in range(sources.most_functions())
        },
        "pointing into another file": {"": (sources.other_file, RANGE_CODES)},
        "past the end of the file": {"": (sources.past_the_end, {"N205"})},
        "reversed": {"": (lambda c: format_citation(c.path, c.last + 1, c.first), {"N202"})},
        "straddling two functions": {"": (sources.straddling, {"N207"})},
        "too wide": {"": (sources.too_wide, {"N205", "N206"})},
    }


HEADS = {
    "": ("fault, in every citation", "planted", "lock in place", "made anew: notes", "reference"),
    ".es": ("fallo, en cada cita", "plantados", "lock en su sitio", "rehecho: notas", "referencia"),
}
SPANISH = {
    "shifted by 1 to 4 lines": "desplazada de 1 a 4 líneas",
    "shifted by 5 to 50 lines": "desplazada de 5 a 50 líneas",
    "pointing at another function": "apunta a otra función",
    "pointing into another file": "apunta a otro archivo",
    "past the end of the file": "más allá del final del archivo",
    "reversed": "al revés",
    "straddling two functions": "a caballo entre dos funciones",
    "too wide": "demasiado ancha",
}


def table(measured: Measured) -> dict[str, Row]:
    """Return the sums of what was measured for each kind."""
    rows = {kind: Row() for kind in measured}
    for kind, ways in measured.items():
        for row in ways.values():
            rows[kind].add(row)
    return rows


def load() -> Measured:
    """Return the last measurement, by kind and way."""
    return msgspec.json.decode(MEASURED.read_bytes(), type=Measured)


def save(measured: Measured) -> None:
    """Store a measurement, one way per line, so that a change shows which way changed."""
    kinds = [
        f"  {json.dumps(kind)}: {{\n"
        + ",\n".join(
            f"    {json.dumps(way)}: {msgspec.json.encode(row).decode()}"
            for way, row in ways.items()
        )
        + "\n  }"
        for kind, ways in measured.items()
    ]
    MEASURED.write_text("{\n" + ",\n".join(kinds) + "\n}\n", "utf-8")


def format_table(rows: dict[str, Row], language: str = "") -> str:
    """Return the table as the docs show it; `language` is '' or '.es'."""
    lines = ["| " + " | ".join(HEADS[language]) + " |", "|---|--:|--:|--:|--:|"]
    for name, row in rows.items():
        rates = (row.with_lock.rate, row.relocked_in_notes.rate, row.relocked_in_reference.rate)
        rate_cells = " | ".join(f"{100 * rate:.1f} %" for rate in rates)
        label = SPANISH[name] if language else name
        # Spanish parts thousands with a space; a comma would be its decimal sign.
        planted = f"{row.with_lock.planted:,}".replace(",", "\u202f" if language else ",")
        lines.append(f"| {label} | {planted} | {rate_cells} |")
    return "\n".join(lines) + "\n"


def fill_in(rows: dict[str, Row]) -> None:
    """Write the table into the docs' page, in both languages."""
    for language in HEADS:
        put_between("faults", format_table(rows, language), f"promise{language}.md")


def put_between(mark: str, text: str, name: str) -> None:
    """Write `text` between the comments `mark` and `/mark` of a page of the reference."""
    page = ROOT / "docs/reference" / name
    block = f"<!-- {mark} -->\n{text}<!-- /{mark} -->"
    pattern = f"<!-- {mark} -->.*<!-- /{mark} -->"
    old = page.read_text("utf-8")
    page.write_text(re.sub(pattern, lambda _: block, old, flags=re.DOTALL), "utf-8")


def main() -> None:
    """Plant every fault, store the figures, print the table and write it into the docs."""
    from tests.notelab.real import real_bench

    with tempfile.TemporaryDirectory() as folder:
        book = copy_of_the_lab(Path(folder) / "book", real_bench())
        save(
            {
                kind: {way: plant(book, *plant_arguments) for way, plant_arguments in ways.items()}
                for kind, ways in plants(book).items()
            }
        )
    rows = table(load())
    fill_in(rows)
    print(format_table(rows), end="")


if __name__ == "__main__":
    main()
