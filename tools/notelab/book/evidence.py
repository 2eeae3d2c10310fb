"""The evidence for a lab's citations: files from providers, or what the lock records of them.

One address at one commit has the same files, whichever lab cites them. The lock of a sibling,
which is another lab of this repository, is as trustworthy as this lab's own. The blob id that it
records is therefore enough for a first proof; the bytes must still have that id.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import msgspec

from notelab.book.discovery import labs_below
from notelab.cache import cache_key, code_version, get_or_compute
from notelab.cited import outline, tokens
from notelab.cited.outline import Outline
from notelab.errors import NotelabError, display_path
from notelab.lab import lock as lock_file
from notelab.lab import pins
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock, LockedFile, LockedSource
from notelab.lab.pins import Pin
from notelab.lines import split_lines
from notelab.sources.answers import (
    WORKTREE,
    Absent,
    FoundFile,
    Source,
    Unreachable,
    Wanted,
    Wheel,
    pointer_kind,
)


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


TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.book.workbook import CheckSession


class State(StrEnum):
    """What is known about a path in one source."""

    PROVED = "proved"  # the file's bytes were read, and the commit holds them
    POINTER = "pointer"  # the commit holds only a pointer to the file's contents
    LOCKED = "locked"  # no provider has the bytes, but the lock records the file
    ABSENT = "absent"  # the commit has no such file
    LACKING = "lacking"  # a wheel lacks the file, but it holds only a part of the commit
    UNKNOWN = "unknown"  # no provider could tell


class CitedFile(msgspec.Struct):
    """One path of one source: its state and, if its bytes were read, its lines and structure."""

    source: str
    path: str
    state: State
    blob: str = ""
    proof: str = ""
    provider: str = ""
    lines: list[bytes] = []
    structure: Callable[[], Outline] | None = None
    runs: Callable[[], frozenset[int]] = frozenset  # hashes of its tokens
    suggestions: list[str] = []
    ends: list[str] = []  # paths of the tree that end in this absent one
    has_kin: bool = True  # or files with its ending
    reasons: list[str] = []
    disputed: str = ""
    vouched_by: str = ""  # the lock of another lab that records the file, if this lab's doesn't

    @property
    def outline(self) -> Outline | None:
        """Return the file's structure; it is computed at the first call."""
        return self.structure() if self.structure else None

    def sha256_of(self, first: int, last: int) -> str:
        """Return the SHA-256 of the lines, each with a newline at its end."""
        return sha256(b"\n".join(self.lines[first - 1 : last]) + b"\n").hexdigest()


class Evidence:
    """Reads the files that one lab cites, at its pins."""

    def __init__(
        self, lab: Lab, pins: dict[str, Pin], lock: Lock | None, session: "CheckSession"
    ) -> None:
        """Remember the lab; nothing is read before `gather`."""
        self._lab, self._pins, self.lock = lab, pins, lock or Lock()
        self.moves: dict[tuple[str, str], list[tuple[int, int]]] = {}  # of a file's citations
        self.library, self._cache = session.library, session.cache
        self._sibling_locks = SiblingLocks(lab, session)
        self._from_siblings: dict[tuple[str, str], KnownBlob] = {}
        self._sources: dict[str, Source] = {}
        self._files: dict[tuple[str, str], CitedFile] = {}
        self._store_only: set[tuple[str, str]] = set()  # files for which only the store was asked

    def gather(self, wanted: Iterable[tuple[str, str]], *, store_only: bool = False) -> None:
        """Read every wanted (source, path), in one batch per source.

        With `store_only`, only the store is asked.
        """
        for source, paths in self.list_questions(wanted, store_only=store_only):
            answers = self.library.read(source, paths, store_only=store_only)
            doubted: Wanted = {
                path: None for path in paths if self._is_sibling_wrong(source, answers[path])
            }
            if doubted:
                answers |= self.library.read(source, doubted)
            for path in paths:
                file = self._make_cited_file(source.name, path, answers[path])
                self._files[source.name, path] = file
                if store_only and file.state is not State.PROVED:
                    self._store_only.add((source.name, path))
                else:
                    self._store_only.discard((source.name, path))

    def list_questions(
        self, wanted: Iterable[tuple[str, str]], *, store_only: bool = False
    ) -> list[tuple[Source, Wanted]]:
        """Return what `gather` would ask the library: sources at their pins, paths and blob ids."""
        wanted_by_source: dict[str, Wanted] = {}
        for name, path in dict.fromkeys(wanted):
            pin = self._pins.get(name)
            is_gathered = (name, path) in self._files and (
                store_only or (name, path) not in self._store_only
            )
            if pin and pin.commit and not is_gathered:
                locked = self._expected_file(name, path, own_lock_only=store_only)
                wanted_by_source.setdefault(name, {})[path] = locked.blob if locked else None
        return [(self.source(name), paths) for name, paths in wanted_by_source.items()]

    def _expected_file(self, name: str, path: str, *, own_lock_only: bool) -> LockedFile | None:
        """Return a file's entry in this lab's lock, or else in the lock of another lab."""
        if self._pins[name].commit == WORKTREE:
            return None  # its files change; the lock records the cited lines only
        locked = self.lock.file(name, path, self._pins[name].commit)
        if locked or own_lock_only:
            return locked
        vouched = self._sibling_locks.file(self.source(name), path)
        if vouched:
            self._from_siblings[name, path] = vouched
        return vouched.file if vouched else None

    def _is_sibling_wrong(self, source: Source, answer: FoundFile | Absent | Unreachable) -> bool:
        """Tell whether a provider disputes the blob id that another lab's lock records."""
        disputed = isinstance(answer, Unreachable) and answer.disputed
        return bool(disputed and self._from_siblings.pop((source.name, answer.path), None))

    def source(self, name: str) -> Source:
        """Return a source of the lab at its pin, with the wheel that a lock records for it."""
        if name not in self._sources:
            commit = self._pins[name].commit
            source = self._lab.source(name, commit)
            known_wheel = self.lock.wheel(
                name, commit, source.wheel or ""
            ) or self._sibling_locks.wheel(source)
            self._sources[name] = msgspec.structs.replace(source, known_wheel=known_wheel)
        return self._sources[name]

    def file(self, source: str, path: str) -> CitedFile | None:
        """Return the gathered file at a path of a source, or None if it wasn't gathered."""
        return self._files.get((source, path))

    def list_sibling_paths(self, source: str) -> list[str]:
        """Return the files of a source, at its pin, that other labs of the repository cite."""
        return self._sibling_locks.list_paths(self.source(source))

    def unknown_commit(self, source: str) -> str:
        """Return which providers say that a source's pin is no commit, or ''."""
        return self.library.unknown_commit(self.source(source))

    def list_files(self) -> list[CitedFile]:
        """Return all gathered files, sorted by source and path."""
        return [self._files[key] for key in sorted(self._files)]

    def _make_cited_file(
        self, name: str, path: str, answer: FoundFile | Absent | Unreachable
    ) -> CitedFile:
        commit = self._pins[name].commit
        own_entry = None if commit == WORKTREE else self.lock.file(name, path, commit)
        vouched = self._from_siblings.get((name, path)) if own_entry is None else None
        entry = own_entry or (vouched.file if vouched else None)
        if isinstance(answer, Absent) and answer.definite:
            file = CitedFile(name, path, State.ABSENT, suggestions=answer.suggestions)
            file.ends, file.has_kin = answer.ends, answer.has_kin
            return file
        if not isinstance(answer, FoundFile):
            state = State.LACKING if isinstance(answer, Absent) else State.UNKNOWN
            file = CitedFile(name, path, state, reasons=answer.reasons)
            if isinstance(answer, Absent):
                file.suggestions = answer.suggestions
            else:
                file.disputed = answer.disputed
            if own_entry:
                file.state, file.blob = State.LOCKED, own_entry.blob
            return file
        if kind := pointer_kind(answer.data):
            reason = f"the commit has a {kind} pointer in its place instead of its text"
            return CitedFile(name, path, State.POINTER, blob=answer.blob, reasons=[reason])
        return CitedFile(
            name,
            path,
            State.PROVED,
            blob=answer.blob,
            proof=_stronger_proof(entry, answer),
            provider=answer.provider,
            vouched_by=vouched.lock_path if vouched else "",
            lines=split_lines(answer.data),
            structure=lambda: self._cache.memoize(
                "outline", f"{path} {answer.blob}", lambda: self._outline(path, answer)
            ),
            runs=lambda: self._cache.memoize("runs", answer.blob, lambda: self._runs(answer)),
        )

    def _outline(self, path: str, contents: FoundFile) -> Outline:
        key = cache_key(code_version(), contents.blob, path.rpartition(".")[2])
        return get_or_compute(
            self._cache, "outline", key, Outline, lambda: outline.of_file(path, contents.data)
        )

    def _runs(self, contents: FoundFile) -> frozenset[int]:
        def pack() -> bytes:
            text = contents.data.decode("utf-8", "replace")
            return tokens.run_hashes(tokens.tokenize_source(text)).tobytes()

        key = cache_key(code_version(), contents.blob)
        return frozenset(array("Q", get_or_compute(self._cache, "runs", key, bytes, pack)))


def _stronger_proof(locked: LockedFile | None, contents: FoundFile) -> str:
    """Return the stronger proof: git proves the commit, a wheel perhaps only the bytes."""
    if contents.proof == "git" or (
        locked and locked.proof == "git" and locked.blob == contents.blob
    ):
        return "git"
    return contents.proof
