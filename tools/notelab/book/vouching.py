"""What other labs of the repository know: a sibling's lock vouches for a file's blob id.

The same address at the same commit has the same files, whichever lab cites them. A lock in this
repository is as trusted as this lab's own, so its word on a blob id does for a first proof: the
bytes still have to have that id.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from notelab.book.finding_labs import labs_below
from notelab.errors import NotelabError, display_path
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import Lab
from notelab.lab.lock import LockedFile, LockedSource
from notelab.sources.answers import Source, Wheel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.book.workbook import Bench


class Vouched(msgspec.Struct, frozen=True):
    """A file as a sibling's lock has it, and which lock that is."""

    file: LockedFile
    by: str


class Siblings:
    """The locks of the repository's other labs, read when they are first needed."""

    def __init__(self, lab: Lab, bench: "Bench") -> None:
        """Nothing is read yet."""
        self._lab, self._bench = lab, bench

    def file(self, source: Source, path: str) -> Vouched | None:
        """Return what a sibling knows of a file of the source, at the same commit."""
        for by, known, _ in self._of(source):
            if path in known.files:
                return Vouched(known.files[path], by)
        return None

    def wheel(self, source: Source) -> Wheel | None:
        """Return the wheel that a sibling knows for the source, if it asks for the same version."""
        for _, known, wheel in self._of(source) if source.wheel else ():
            if known.wheel and wheel == source.wheel:
                return known.wheel
        return None

    def _of(self, source: Source) -> list[tuple[str, LockedSource, str]]:
        return self._known.get((source.url, source.commit), [])

    @cached_property
    def _known(self) -> dict[tuple[str, str], list[tuple[str, LockedSource, str]]]:
        known: dict[tuple[str, str], list[tuple[str, LockedSource, str]]] = {}
        for folder in labs_below(self._lab.root):
            if folder != self._lab.folder:
                for url, one in self._told(folder):
                    known.setdefault((url, one[1].commit), []).append(one)
        return known

    def _told(self, folder: Path) -> Iterator[tuple[str, tuple[str, LockedSource, str]]]:
        try:
            lab = self._bench.lab(folder)
            lock = lock_file.load(folder / lock_file.LOCK_FILE)
        except NotelabError:
            return  # said when that lab is checked
        for name, known in lock.sources.items() if lock else ():
            table = lab.sources.get(name)
            # Of another commit than its pin it is out of date, and said so there.
            if table and pins.read(name, lab.pins_folder / table.pin).commit == known.commit:
                yield table.url, (display_path(folder / lock_file.LOCK_FILE), known, table.wheel)
