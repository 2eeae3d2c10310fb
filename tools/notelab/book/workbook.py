"""Opens a lab: reads its pages, pins and lock, and gathers the evidence for its citations."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from notelab.book.evidence import Evidence
from notelab.book.resolve import Resolver
from notelab.book.settling import Settling, files_of
from notelab.cache import DiskCache
from notelab.lab import lab as lab_file
from notelab.lab import lock as lock_file
from notelab.lab import pages, pins
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pages import ParsedPage
from notelab.mermaid.parsed_diagrams import Progress
from notelab.page.citation import Citation
from notelab.sources.library import Library


class CheckSession(msgspec.Struct):
    """What the labs of one command share: the cache, the library of sources, and progress."""

    cache: DiskCache
    library: Library
    progress: Progress = lambda what, done, of: None

    def lab(self, folder: Path) -> Lab:
        """Read a lab's file; it is read once in a session.

        Raises:
            NotelabError: lab.toml cannot be read.
        """
        cache = self.cache.file_for(lab_file.repository_root(folder.resolve()))
        return self.cache.memoize("lab", str(folder), lambda: lab_file.load(folder, cache=cache))


class Workbook(msgspec.Struct):
    """An open lab: its parsed pages, pins and lock, and the evidence for its citations."""

    lab: Lab
    views: list[ParsedPage]
    pins: dict[str, pins.Pin]
    lock: Lock | None
    evidence: Evidence
    resolver: Resolver
    settling: Settling


def open_lab(folder: Path, session: CheckSession, only: set[Path] | None = None) -> Workbook:
    """Open a lab and gather the evidence for the pages in `only` (None means all pages).

    Raises:
        NotelabError: lab.toml or the lock cannot be read.
    """
    return open_labs({folder: only}, session)[0]


def open_labs(
    wanted: Mapping[Path, set[Path] | None], session: CheckSession, source: str | None = None
) -> list[Workbook]:
    """Open several labs, as `open_lab` does; the files that they cite are read together.

    With `source`, only files of that source are read.

    Raises:
        NotelabError: a lab.toml or a lock cannot be read.
    """
    books = [_read_lab(folder, session, only) for folder, only in wanted.items()]
    cited_files = [
        [cited_file for cited_file in _list_cited_files(book) if source in (None, cited_file[0])]
        for book in books
    ]
    if len(books) > 1:
        questions = [
            book.evidence.list_questions(of) for book, of in zip(books, cited_files, strict=True)
        ]
        session.library.prefetch(question for questions in questions for question in questions)
    for book, of in zip(books, cited_files, strict=True):
        book.evidence.gather(of)
        # Rules search pages for source that was pasted from any pinned file in the store.
        book.evidence.gather(_list_locked_files(book), store_only=True)
        book.views = book.settling.resolve_paths(book.views)
    return books


def _read_lab(folder: Path, session: CheckSession, only: set[Path] | None) -> Workbook:
    """Read a lab's pages, pins and lock without gathering evidence."""
    lab = session.lab(folder)
    pages_read = pages.list_pages(lab)
    if only is not None:  # their originals and translations are read, too, to compare them
        families = {page.family for page in pages_read if page.path in only}
        pages_read = [page for page in pages_read if page.family in families]
    cache = session.cache.file_for(lab.root)
    views = [pages.parse(page, cache) for page in pages_read]
    pins_read = {
        name: pins.read(name, lab.pins_folder / source.pin) for name, source in lab.sources.items()
    }
    lock = lock_file.load(lab.folder / lock_file.LOCK_FILE)
    return _assemble(lab, views, pins_read, lock, session)


def _assemble(
    lab: Lab,
    views: list[ParsedPage],
    pins_read: dict[str, pins.Pin],
    lock: Lock | None,
    session: CheckSession,
) -> Workbook:
    evidence = Evidence(lab, pins_read, lock, session)
    resolver = Resolver(lab, pins_read, lock, evidence)
    settling = Settling(lab, pins_read, lock, evidence, resolver)
    return Workbook(
        lab, settling.resolve_links(views), pins_read, lock, evidence, resolver, settling
    )


def reload(book: Workbook, session: CheckSession) -> Workbook:
    """Gather the evidence again, for the present lab, pins, pages and lock of a workbook."""
    return open_views(book.lab, book.views, book.pins, book.lock, session)


def open_views(
    lab: Lab,
    views: list[ParsedPage],
    pinned: dict[str, pins.Pin],
    lock: Lock | None,
    session: CheckSession,
) -> Workbook:
    """Open pages that were read already, with their lab, pins and lock."""
    reloaded = _assemble(lab, views, pinned, lock, session)
    reloaded.evidence.gather(_list_cited_files(reloaded))
    reloaded.views = reloaded.settling.resolve_paths(reloaded.views)
    return reloaded


def is_usable(citation: Citation) -> bool:
    """Tell whether a citation is well formed, so that its file can be looked up."""
    return not citation.problem and citation.first <= citation.last


def _list_cited_files(book: Workbook) -> Iterable[tuple[str, str]]:
    notes = [view.note for view in book.views if view.note]
    links = (link for note in notes for link in note.files)
    yield from book.resolver.list_wanted_files(
        citation for note in notes for citation in note.citations
    )
    yield from files_of(links, book.pins, book.resolver)


def _list_locked_files(book: Workbook) -> Iterable[tuple[str, str]]:
    for name, source in book.lock.sources.items() if book.lock else ():
        if name in book.pins and source.commit == book.pins[name].commit:
            yield from ((name, path) for path in source.files)
