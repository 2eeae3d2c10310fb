"""Looks files up in the locks of the repository's other labs (its siblings).

One address at one commit has the same files, whichever lab cites them. A lock in this repository is
as trustworthy as this lab's own. The blob id that it records is therefore enough for a first proof;
the bytes must still have that id.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from notelab.book.discovery import labs_below
from notelab.errors import NotelabError, display_path
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import Lab
from notelab.lab.lock import LockedFile, LockedSource
from notelab.sources.answers import Source, Wheel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.book.workbook import CheckSession


class KnownBlob(msgspec.Struct, frozen=True):
    """A file as the lock of another lab records it, and the path of that lock."""

    file: LockedFile
    lock_path: str


class SiblingLocks:
    """The locks of the repository's other labs; they are read when they are first needed."""

    def __init__(self, lab: Lab, session: "CheckSession") -> None:
        """Remember the lab; nothing is read yet."""
        self._lab, self._session = lab, session

    def file(self, source: Source, path: str) -> KnownBlob | None:
        """Return what another lab's lock records of a file of the source at the same commit."""
        for lock_path, locked_source, _ in self._entries_of(source):
            if path in locked_source.files:
                return KnownBlob(locked_source.files[path], lock_path)
        return None

    def list_paths(self, source: Source) -> list[str]:
        """Return the files of the source at the same commit that other labs' locks record."""
        return sorted({path for _, entry, _ in self._entries_of(source) for path in entry.files})

    def wheel(self, source: Source) -> Wheel | None:
        """Return the wheel that another lab's lock records for the same version of the source."""
        for _, locked_source, wheel in self._entries_of(source) if source.wheel else ():
            if locked_source.wheel and wheel == source.wheel:
                return locked_source.wheel
        return None

    def _entries_of(self, source: Source) -> list[tuple[str, LockedSource, str]]:
        return self._by_address.get((source.url, source.commit), [])

    @cached_property
    def _by_address(self) -> dict[tuple[str, str], list[tuple[str, LockedSource, str]]]:
        by_address: dict[tuple[str, str], list[tuple[str, LockedSource, str]]] = {}
        for folder in labs_below(self._lab.root):
            if folder != self._lab.folder:
                for url, entry in self._read_lock(folder):
                    by_address.setdefault((url, entry[1].commit), []).append(entry)
        return by_address

    def _read_lock(self, folder: Path) -> Iterator[tuple[str, tuple[str, LockedSource, str]]]:
        try:
            lab = self._session.lab(folder)
            lock = lock_file.load(folder / lock_file.LOCK_FILE)
        except NotelabError:
            return  # a check of that lab reports it
        for name, locked_source in lock.sources.items() if lock else ():
            table = lab.sources.get(name)
            # A lock of another commit than the pin is outdated; a check of that lab reports it.
            if (
                table
                and pins.read(name, lab.pins_folder / table.pin).commit == locked_source.commit
            ):
                yield (
                    table.url,
                    (display_path(folder / lock_file.LOCK_FILE), locked_source, table.wheel),
                )
