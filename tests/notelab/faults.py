"""Faults planted in the real notes, and which of them the checker catches.

`python -m tests.notelab.faults` prints the table that docs/reference/promise.md shows. The pins are
fixed and nothing here is random, so the table is the same on every machine that has the sources.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from notelab import lock as lock_file
from notelab.check import Bench, Report, Workbook, check_lab, open_lab
from notelab.citation import Citation, Span, looks_like_citation, parse, written
from notelab.evidence import CitedFile, State
from notelab.fitting import ends_well
from notelab.outline import FUNCTION
from notelab.relock import relock

ROOT = Path(__file__).resolve().parents[2]
LAB = Path("experiments/35-reading-notes")
SHIFTS = [shift for size in range(1, 51) for shift in (-size, size)]
_CODE_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass
class Book:
    """A copy of the real lab, to plant faults in."""

    root: Path
    bench: Bench

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
        """Make the copy's lock anew."""
        made = relock(self.open())
        (self.lab / "citations.lock").write_text(lock_file.dump(made.lock), "utf-8")

    def restore(self) -> None:
        """Undo every fault."""
        for folder in (LAB, Path("solutions")):
            shutil.rmtree(self.root / folder, ignore_errors=True)
            shutil.copytree(ROOT / folder, self.root / folder)


def copy_of_the_lab(root: Path, bench: Bench) -> Book:
    """Copy the real lab and its solutions into a repository of their own."""
    book = Book(root, bench)
    (root / ".git").mkdir(parents=True)
    book.restore()
    return book


def rewritten(text: str, new: Callable[[Citation], str | None]) -> tuple[str, dict[str, str]]:
    """Replace each citation of a page; return the page and the old text by the new one."""
    changed: dict[str, str] = {}

    def swap(found: re.Match[str]) -> str:
        code = found[1]
        if not looks_like_citation(code):
            return found[0]
        replaced = new(parse(code, Span(1, 1, 1, 1)))
        if replaced is None or replaced == code:
            return found[0]
        changed[replaced] = code
        return f"`{replaced}`"

    return _CODE_SPAN.sub(swap, text), changed


@dataclass
class Tally:
    """How many planted faults were caught."""

    planted: int = 0
    caught: int = 0
    missed: tuple[str, ...] = ()

    def add(self, planted: int, missed: list[str]) -> None:
        """Count one more round."""
        self.planted += planted
        self.caught += planted - len(missed)
        self.missed += tuple(missed)

    @property
    def rate(self) -> float:
        """The share caught."""
        return self.caught / self.planted if self.planted else 0.0


class Sources:
    """The cited files of the real lab, to aim the faults with."""

    def __init__(self, book: Book) -> None:
        """Read every cited file once."""
        self._files = {
            file.path: file
            for file in book.open().evidence.gathered()
            if file.state is State.PROVED
        }

    def file(self, citation: Citation) -> CitedFile:
        """Return the file that a citation names."""
        return self._files[citation.path]

    def shifted(self, citation: Citation, by: int) -> str | None:
        """Move a range; one that would begin before the file has no such shift."""
        if citation.first + by < 1:
            return None
        return written(citation.path, citation.first + by, citation.last + by)

    def other_file(self, citation: Citation) -> str | None:
        """The same lines of another file of the same source."""
        mine = self.file(citation)
        others = [f.path for f in self._files.values() if f.source == mine.source and f != mine]
        if not others:
            return None
        return written(sorted(others)[0], citation.first, citation.last)

    def other_symbols(self, citation: Citation) -> Iterator[str]:
        """The head of each function around that is not the cited one: a range sound in itself."""
        outline = self.file(citation).outline
        assert outline is not None
        own = outline.innermost(citation.first, citation.last)
        for symbol in outline.symbols:
            apart = symbol.last < citation.first or symbol.top > citation.last
            if symbol.kind != FUNCTION or not apart or (own and symbol.name == own.name):
                continue
            length = max(citation.last - citation.first, symbol.line - symbol.top + 1)
            ends = [
                line
                for line in range(symbol.line + 1, min(symbol.top + length, symbol.last) + 1)
                if ends_well(outline, line)
            ]
            if ends:
                yield written(citation.path, symbol.top, ends[-1])

    def straddling(self, citation: Citation) -> str | None:
        """From the last line of one function into the first of the next."""
        outline = self.file(citation).outline
        assert outline is not None
        tops = [s for s in outline.symbols if s.kind == FUNCTION and s.parent == -1]
        for one, two in zip(tops, tops[1:], strict=False):
            if two.top > citation.first and two.line - one.last < 30:
                return written(citation.path, one.last, two.line)
        return None

    def too_wide(self, citation: Citation) -> str | None:
        """Forty-one lines or more."""
        return written(citation.path, citation.first, citation.first + 40)

    def past_the_end(self, citation: Citation) -> str:
        """The lines just after the last."""
        count = len(self.file(citation).lines)
        return written(citation.path, count, count + 2)


def caught(report: Report, changed: dict[str, str], wanted: set[str], path: Path) -> list[str]:
    """Return the planted citations that no finding of `wanted` codes names, on their own page."""
    said = [
        finding.message
        for finding in report.findings
        if finding.code in wanted and finding.filename.endswith(path.name)
    ]
    return [new for new in changed if not any(f"`{new}`" in message for message in said)]


RANGE_CODES = {"N201", "N202", "N203", "N205", "N206", "N207", "N208", "N209"}
LOCK_CODES = RANGE_CODES | {"N210", "N211", "N213", "N214"}


def plant(
    book: Book, new: Callable[[Citation], str | None], wanted: set[str], *, relocked: bool
) -> Tally:
    """Replace every citation of every page, in both languages at once, and count what is caught."""
    tally = Tally()
    originals = {path: path.read_text("utf-8") for path in book.pages()}
    lock = book.lab / "citations.lock"
    kept = lock.read_bytes()
    planted: dict[Path, dict[str, str]] = {}
    try:
        for path, text in originals.items():
            mutated, planted[path] = rewritten(text, new)
            path.write_text(mutated, "utf-8")
        if relocked:
            book.lock()
        report = book.check()
        for path, changed in planted.items():
            tally.add(len(changed), caught(report, changed, wanted, path))
    finally:
        lock.write_bytes(kept)
        for path, text in originals.items():
            path.write_text(text, "utf-8")
    return tally


def shifts(book: Book, sizes: range, *, relocked: bool) -> Tally:
    """Shift every citation by every distance in `sizes`, up and down."""
    sources, total = Sources(book), Tally()
    wanted = RANGE_CODES if relocked else LOCK_CODES
    for size in sizes:
        for by in (-size, size):
            part = plant(book, lambda c, by=by: sources.shifted(c, by), wanted, relocked=relocked)
            total.add(part.planted, list(part.missed))
    return total


def other_symbols(book: Book, *, relocked: bool, most: int = 60) -> Tally:
    """Point every citation at other functions of its file, one round a function."""
    sources, total = Sources(book), Tally()
    wanted = RANGE_CODES if relocked else LOCK_CODES
    choices: dict[str, list[str]] = {}

    def nth(citation: Citation, index: int) -> str | None:
        known = choices.setdefault(citation.key, list(sources.other_symbols(citation)))
        return known[index] if index < len(known) else None

    for index in range(most):
        part = plant(book, lambda c, i=index: nth(c, i), wanted, relocked=relocked)
        total.add(part.planted, list(part.missed))
        if not part.planted:
            break
    return total


def table(book: Book) -> list[tuple[str, Tally, Tally]]:
    """Plant every fault in citations with the lock in place, and with the lock made anew."""
    sources = Sources(book)
    single: list[tuple[str, Callable[[Citation], str | None], set[str]]] = [
        ("another file of the source", sources.other_file, RANGE_CODES),
        ("a range past the end", sources.past_the_end, {"N205"}),
        ("a range reversed", lambda c: written(c.path, c.last + 1, c.first), {"N202"}),
        ("a range that straddles two functions", sources.straddling, {"N207"}),
        ("a range too wide", sources.too_wide, {"N205", "N206"}),
    ]
    rows = [
        (name, shifts(book, sizes, relocked=False), shifts(book, sizes, relocked=True))
        for name, sizes in (
            ("shifted by 1 to 4 lines", range(1, 5)),
            ("shifted by 5 to 50 lines", range(5, 51)),
        )
    ]
    rows.append(
        (
            "another function of the file",
            other_symbols(book, relocked=False),
            other_symbols(book, relocked=True),
        )
    )
    for name, new, wanted in single:
        either = wanted | {"N210", "N213"} if name.startswith("another file") else wanted
        rows.append(
            (
                name,
                plant(book, new, either, relocked=False),
                plant(book, new, either, relocked=True),
            )
        )
    return rows


def as_markdown(rows: list[tuple[str, Tally, Tally]]) -> str:
    """Write the table as the docs show it."""
    lines = [
        "| fault, planted in every citation of every page | planted | caught, lock in place "
        "| caught, lock made anew |",
        "|---|--:|--:|--:|",
    ]
    lines += [
        f"| {name} | {kept.planted} | {100 * kept.rate:.1f} % | {100 * anew.rate:.1f} % |"
        for name, kept, anew in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import tempfile

    from tests.notelab.real import real_bench

    with tempfile.TemporaryDirectory() as folder:
        print(as_markdown(table(copy_of_the_lab(Path(folder) / "book", real_bench()))), end="")
