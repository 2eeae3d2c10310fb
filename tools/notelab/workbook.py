"""A lab opened: its pages read, its pins, its lock, and the evidence for what it cites."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from notelab import lab as lab_file
from notelab import lock as lock_file
from notelab import pages, pins, view
from notelab.citation import Citation
from notelab.evidence import Evidence
from notelab.lab import Lab
from notelab.lock import Lock
from notelab.memo import Memo
from notelab.resolve import Resolver
from notelab.sources.library import Library
from notelab.view import View


class Bench(msgspec.Struct):
    """What a check works with: the content cache, and who makes a library of sources."""

    memo: Memo
    library: Library

    def lab(self, folder: Path) -> Lab:
        """Read a lab's file, once however often it is asked for.

        Raises:
            NotelabError: lab.toml cannot be read.
        """
        return self.memo.once("lab", str(folder), lambda: lab_file.load(folder, self.memo))


class Workbook(msgspec.Struct):
    """A lab opened: its pages read, its pins, its lock, the evidence for what it cites."""

    lab: Lab
    views: list[View]
    pins: dict[str, pins.Pin]
    lock: Lock | None
    evidence: Evidence
    resolver: Resolver


def open_lab(folder: Path, bench: Bench, only: set[Path] | None = None) -> Workbook:
    """Open a lab and gather the evidence for the pages in `only` (all of them where None).

    Raises:
        NotelabError: lab.toml or the lock cannot be read.
    """
    lab = bench.lab(folder)
    found = pages.of_lab(lab)
    if only is not None:
        found = _with_relatives(found, only)
    views = [view.of_page(page, bench.memo) for page in found]
    pinned = {
        name: pins.read(name, lab.pins_folder / source.pin) for name, source in lab.sources.items()
    }
    lock = lock_file.load(lab.folder / lock_file.LOCK_FILE)
    evidence = Evidence(lab, pinned, lock or Lock(), bench.library, bench.memo)
    resolver = Resolver(lab, pinned, lock or Lock(), evidence)
    resolver.gather(citation for one in views if one.note for citation in one.note.citations)
    # Pages are compared with every pinned file at hand for pasted source, cited there or not.
    evidence.gather(_locked(lock or Lock(), pinned), store_only=True)
    return Workbook(lab, views, pinned, lock, evidence, resolver)


def _with_relatives(found: list[pages.Page], only: set[Path]) -> list[pages.Page]:
    """Keep the pages asked for, with the originals and translations they are compared with."""
    families = {page.family for page in found if page.path in only}
    return [page for page in found if page.family in families]


def usable(citation: Citation) -> bool:
    """Tell whether a citation is formed well enough to look its file up."""
    return not citation.problem and citation.first <= citation.last


def _locked(lock: Lock, pinned: dict[str, pins.Pin]) -> Iterable[tuple[str, str]]:
    for name, source in lock.sources.items():
        if name in pinned and source.commit == pinned[name].commit:
            yield from ((name, path) for path in source.files)
