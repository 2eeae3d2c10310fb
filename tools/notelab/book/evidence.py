"""The evidence for a lab's citations: files from providers, or what the lock records of them."""

from array import array
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256

import msgspec

from notelab.book.sibling_locks import KnownBlob, SiblingLocks
from notelab.cache import cache_key, code_version, get_or_compute
from notelab.cited import outline, tokens
from notelab.cited.outline import Outline
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock, LockedFile
from notelab.lab.pins import Pin
from notelab.lines import split_lines
from notelab.sources.answers import (
    WORKTREE,
    Absent,
    FoundFile,
    Source,
    Unreachable,
    Wanted,
    pointer_kind,
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
