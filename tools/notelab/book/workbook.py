"""A lab opened: its pages read, its pins, its lock, and the evidence for what it cites."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from notelab.book import view
from notelab.book.evidence import Evidence
from notelab.book.resolve import Resolver
from notelab.book.settling import Settling, files_of
from notelab.book.view import View
from notelab.cache import DiskCache
from notelab.lab import lab as lab_file
from notelab.lab import lock as lock_file
from notelab.lab import pages, pins
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.mermaid.diagrams import Progress
from notelab.page.citation import Citation
from notelab.sources.library import Library


class Bench(msgspec.Struct):
    """What a check works with: the content cache, the library of sources, and who is told."""

    cache: DiskCache
    library: Library
    progress: Progress = lambda what, done, of: None

    def lab(self, folder: Path) -> Lab:
        """Read a lab's file, once however often it is asked for.

        Raises:
            NotelabError: lab.toml cannot be read.
        """
        return self.cache.memoize("lab", str(folder), lambda: lab_file.load(folder, self.cache))


class Workbook(msgspec.Struct):
    """A lab opened: its pages read, its pins, its lock, the evidence for what it cites."""

    lab: Lab
    views: list[View]
    pins: dict[str, pins.Pin]
    lock: Lock | None
    evidence: Evidence
    resolver: Resolver
    settling: Settling


def open_lab(folder: Path, bench: Bench, only: set[Path] | None = None) -> Workbook:
    """Open a lab and gather the evidence for the pages in `only` (all of them where None).

    Raises:
        NotelabError: lab.toml or the lock cannot be read.
    """
    return open_labs({folder: only}, bench)[0]


def open_labs(
    wanted: Mapping[Path, set[Path] | None], bench: Bench, source: str | None = None
) -> list[Workbook]:
    """Open several labs, as `open_lab` does; what all of them cite is asked for together.

    With `source` no other source is asked for anything.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read.
    """
    books = [_read(folder, bench, only) for folder, only in wanted.items()]
    cited = [[one for one in _cited(book) if source in (None, one[0])] for book in books]
    if len(books) > 1:
        asked = [book.evidence.questions(of) for book, of in zip(books, cited, strict=True)]
        bench.library.ahead(question for questions in asked for question in questions)
    for book, of in zip(books, cited, strict=True):
        book.evidence.gather(of)
        # Pages are compared with every pinned file at hand for pasted source, cited there or not.
        book.evidence.gather(_locked(book), store_only=True)
        book.views = book.settling.after(book.views)
    return books


def _read(folder: Path, bench: Bench, only: set[Path] | None) -> Workbook:
    """Read a lab's pages, pins and lock, and gather nothing yet."""
    lab = bench.lab(folder)
    found = pages.list_pages(lab)
    if only is not None:  # and the originals and translations that those are compared with
        families = {page.family for page in found if page.path in only}
        found = [page for page in found if page.family in families]
    cache = bench.cache.file_for(lab.root)
    views = [view.of_page(page, cache) for page in found]
    pinned = {
        name: pins.read(name, lab.pins_folder / source.pin) for name, source in lab.sources.items()
    }
    lock = lock_file.load(lab.folder / lock_file.LOCK_FILE)
    return _settled(lab, views, pinned, lock, bench)


def _settled(
    lab: Lab, views: list[View], pinned: dict[str, pins.Pin], lock: Lock | None, bench: Bench
) -> Workbook:
    evidence = Evidence(lab, pinned, lock, bench)
    resolver = Resolver(lab, pinned, lock, evidence)
    settling = Settling(lab, pinned, lock, evidence, resolver, library=bench.library)
    return Workbook(lab, settling.before(views), pinned, lock, evidence, resolver, settling)


def anew(book: Workbook, bench: Bench) -> Workbook:
    """Return a workbook with the evidence for what its lab, pins, pages and lock are now."""
    made = _settled(book.lab, book.views, book.pins, book.lock, bench)
    made.evidence.gather(_cited(made))
    made.views = made.settling.after(made.views)
    return made


def usable(citation: Citation) -> bool:
    """Tell whether a citation is formed well enough to look its file up."""
    return not citation.problem and citation.first <= citation.last


def _cited(book: Workbook) -> Iterable[tuple[str, str]]:
    notes = [one.note for one in book.views if one.note]
    links = (link for note in notes for link in note.files)
    yield from book.resolver.wanted(citation for note in notes for citation in note.citations)
    yield from files_of(links, book.pins, book.resolver)


def _locked(book: Workbook) -> Iterable[tuple[str, str]]:
    for name, source in book.lock.sources.items() if book.lock else ():
        if name in book.pins and source.commit == book.pins[name].commit:
            yield from ((name, path) for path in source.files)
