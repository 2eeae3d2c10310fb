"""A lab's cited files and their lines: bytes where a provider had them, else what the lock has."""

from array import array
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256

import msgspec

from notelab.book.vouching import Siblings, Vouched
from notelab.cache import cache_key, get_or_compute
from notelab.cited import outline
from notelab.cited.outline import Outline
from notelab.code_version import code_version
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock, LockedFile
from notelab.lab.pins import Pin
from notelab.lines import split_lines
from notelab.page import tokens
from notelab.sources.answers import Absent, Found, Source, TagCommit, Unreachable, Wanted, Wheel
from notelab.sources.pointer import pointer_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.book.workbook import Bench


class State(StrEnum):
    """What is known of a path in one source."""

    PROVED = "proved"  # the file's own bytes are at hand, and are the commit's
    POINTER = "pointer"  # the commit holds a pointer to the file's contents, which are elsewhere
    LOCKED = "locked"  # no bytes at hand, but the lock knows the file
    ABSENT = "absent"  # the commit has no such file
    LACKING = "lacking"  # a wheel, which holds only part of the commit, has no such file
    UNKNOWN = "unknown"  # nobody could say


class CitedFile(msgspec.Struct):
    """One path of one source: its state, and with bytes at hand its lines and structure."""

    source: str
    path: str
    state: State
    blob: str = ""
    proof: str = ""
    provider: str = ""
    lines: list[bytes] = []
    structure: Callable[[], Outline] | None = None
    runs: Callable[[], frozenset[int]] = frozenset  # of its tokens, for who looks for a paste
    near: list[str] = []
    ends: list[str] = []  # paths of the tree that end in an absent one
    reasons: list[str] = []
    disputed: str = ""
    vouched: str = ""  # the sibling's lock that knew the file, where this lab's didn't

    @property
    def outline(self) -> Outline | None:
        """Return the file's structure, worked out when it is first asked for."""
        return self.structure() if self.structure else None

    def sha256_of(self, first: int, last: int) -> str:
        """Return the SHA-256 of the lines, joined and ended by a newline each."""
        return sha256(b"\n".join(self.lines[first - 1 : last]) + b"\n").hexdigest()


class Evidence:
    """Answers, for the citations of one lab, what stands at the pins."""

    def __init__(self, lab: Lab, pins: dict[str, Pin], lock: Lock | None, bench: "Bench") -> None:
        """Nothing is read before `gather`."""
        self._lab, self._pins, self._lock = lab, pins, lock or Lock()
        self._library, self._cache = bench.library, bench.cache
        self._siblings = Siblings(lab, bench)
        self._vouched: dict[tuple[str, str], Vouched] = {}
        self._sources: dict[str, Source] = {}
        self._files: dict[tuple[str, str], CitedFile] = {}
        self._unasked: set[tuple[str, str]] = set()  # of these the store alone was asked

    def gather(self, wanted: Iterable[tuple[str, str]], *, store_only: bool = False) -> None:
        """Read every (source, path) wanted, in one batch per source.

        With `store_only` no other provider is asked.
        """
        for source, paths in self.questions(wanted, store_only=store_only):
            answers = self._library.read(source, paths, store_only=store_only)
            doubted: Wanted = {
                path: None for path in paths if self._is_wrongly_vouched(source, answers[path])
            }
            if doubted:
                answers |= self._library.read(source, doubted)
            for path in paths:
                made = self._cited(source.name, path, answers[path])
                self._files[source.name, path] = made
                if store_only and made.state is not State.PROVED:
                    self._unasked.add((source.name, path))
                else:
                    self._unasked.discard((source.name, path))

    def questions(
        self, wanted: Iterable[tuple[str, str]], *, store_only: bool = False
    ) -> list[tuple[Source, Wanted]]:
        """Return what `gather` would ask the library: a source at its pin, paths and blob ids."""
        asked: dict[str, Wanted] = {}
        for name, path in dict.fromkeys(wanted):
            pin = self._pins.get(name)
            done = (name, path) in self._files and (store_only or (name, path) not in self._unasked)
            if pin and pin.commit and not done:
                known = self._known(name, path, own=store_only)
                asked.setdefault(name, {})[path] = known.blob if known else None
        return [(self.source(name), paths) for name, paths in asked.items()]

    def _known(self, name: str, path: str, *, own: bool) -> LockedFile | None:
        """Return the file as the lock knows it, else (unless `own`) as a sibling's lock does."""
        known = self._lock.file(name, path, self._pins[name].commit)
        if known or own:
            return known
        vouched = self._siblings.file(self.source(name), path)
        if vouched:
            self._vouched[name, path] = vouched
        return vouched.file if vouched else None

    def _is_wrongly_vouched(self, source: Source, answer: Found | Absent | Unreachable) -> bool:
        """Tell whether a provider has another file than a sibling's lock says; then it is asked."""
        disputed = isinstance(answer, Unreachable) and answer.disputed
        return bool(disputed and self._vouched.pop((source.name, answer.path), None))

    def source(self, name: str) -> Source:
        """Return a source of the lab at its pin, with the wheel that a lock remembers for it."""
        if name not in self._sources:
            commit = self._pins[name].commit
            bare = self._lab.source(name, commit)
            known = self._lock.wheel(name, commit, bare.wheel or "") or self._siblings.wheel(bare)
            self._sources[name] = msgspec.structs.replace(bare, known=known)
        return self._sources[name]

    def published_wheel(self, name: str) -> Wheel:
        """Return which wheel the package index has for a source that names one.

        Raises:
            SourceError: it has none, or can't be asked.
        """
        return self._library.wheel(self.source(name))

    def file(self, source: str, path: str) -> CitedFile | None:
        """Return what was gathered of a path in a source."""
        return self._files.get((source, path))

    def unknown_commit(self, source: str) -> str:
        """Return who said that it has no such commit as a source's pin, or ''."""
        return self._library.unknown_commit(self.source(source))

    def release_tag(self, source: str) -> TagCommit | None:
        """Return which commit a source's release tag names; None where nobody here can tell."""
        return self._library.release_tag(self.source(source))

    def tags_at(self, source: str) -> list[str]:
        """Return the tags that a clone on disk has at a source's pin."""
        return self._library.tags_at(self.source(source))

    def gathered(self) -> list[CitedFile]:
        """Return every file gathered, by source and path."""
        return [self._files[key] for key in sorted(self._files)]

    def _cited(self, name: str, path: str, answer: Found | Absent | Unreachable) -> CitedFile:
        own = self._lock.file(name, path, self._pins[name].commit)
        vouched = self._vouched.get((name, path)) if own is None else None
        known = own or (vouched.file if vouched else None)
        if isinstance(answer, Absent) and answer.definite:
            return CitedFile(name, path, State.ABSENT, near=answer.near, ends=answer.ends)
        if not isinstance(answer, Found):
            state = State.LACKING if isinstance(answer, Absent) else State.UNKNOWN
            made = CitedFile(name, path, state, reasons=answer.reasons)
            if isinstance(answer, Absent):
                made.near = answer.near
            else:
                made.disputed = answer.disputed
            if own:
                made.state, made.blob = State.LOCKED, own.blob
            return made
        if kind := pointer_kind(answer.data):
            reason = f"the commit has a {kind} pointer in its place, and not its text"
            return CitedFile(name, path, State.POINTER, blob=answer.blob, reasons=[reason])
        return CitedFile(
            name,
            path,
            State.PROVED,
            blob=answer.blob,
            proof=_stronger(known, answer),
            provider=answer.provider,
            vouched=vouched.by if vouched else "",
            lines=split_lines(answer.data),
            structure=lambda: self._cache.memoize(
                "outline", f"{path} {answer.blob}", lambda: self._outline(path, answer)
            ),
            runs=lambda: self._cache.memoize("runs", answer.blob, lambda: self._runs(answer)),
        )

    def _outline(self, path: str, found: Found) -> Outline:
        key = cache_key(code_version(), found.blob, path.rpartition(".")[2])
        return get_or_compute(
            self._cache, "outline", key, Outline, lambda: outline.of_file(path, found.data)
        )

    def _runs(self, found: Found) -> frozenset[int]:
        def packed() -> bytes:
            text = found.data.decode("utf-8", "replace")
            return tokens.run_hashes(tokens.tokenize_source(text)).tobytes()

        key = cache_key(code_version(), found.blob)
        return frozenset(array("Q", get_or_compute(self._cache, "runs", key, bytes, packed)))


def _stronger(known: LockedFile | None, found: Found) -> str:
    """Return the better proof: a git tree names the commit, a wheel may only be the same bytes."""
    if found.proof == "git" or (known and known.proof == "git" and known.blob == found.blob):
        return "git"
    return found.proof
