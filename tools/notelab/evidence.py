"""The cited files of a lab: their bytes where a provider had them, else what the lock knows."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256

import msgspec

from notelab import outline, tokens
from notelab.code_version import code_version
from notelab.lab import Lab
from notelab.lock import Lock, LockedFile
from notelab.memo import Memo, key_of
from notelab.outline import Outline
from notelab.pins import Pin
from notelab.sources.library import Library
from notelab.sources.model import Absent, Found, Source, Unreachable


class State(StrEnum):
    """What is known of a path in one source."""

    PROVED = "proved"  # the file's own bytes are at hand, and are the commit's
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
    runs: frozenset[int] = frozenset()
    near: list[str] = []
    reasons: list[str] = []
    disputed: str = ""

    @property
    def outline(self) -> Outline | None:
        """Return the file's structure, worked out when it is first asked for."""
        return self.structure() if self.structure else None

    def sha256_of(self, first: int, last: int) -> str:
        """Return the SHA-256 of the lines, joined and ended by a newline each."""
        return sha256(b"\n".join(self.lines[first - 1 : last]) + b"\n").hexdigest()


class Evidence:
    """Answers, for the citations of one lab, what stands at the pins."""

    def __init__(
        self, lab: Lab, pins: dict[str, Pin], lock: Lock, library: Library, memo: Memo
    ) -> None:
        """Nothing is read before `gather`."""
        self._lab, self._pins, self._lock = lab, pins, lock
        self._library, self._memo = library, memo
        self._files: dict[tuple[str, str], CitedFile] = {}

    def gather(self, wanted: Iterable[tuple[str, str]], *, store_only: bool = False) -> None:
        """Read every (source, path) wanted, in one batch per source.

        With `store_only` no other provider is asked.
        """
        per_source: dict[str, dict[str, str | None]] = {}
        for name, path in dict.fromkeys(wanted):
            pin = self._pins.get(name)
            if pin and pin.commit and (name, path) not in self._files:
                known = self._lock.file(name, path, pin.commit)
                per_source.setdefault(name, {})[path] = known.blob if known else None
        for name, paths in per_source.items():
            answers = self._library.read(self.source(name), paths, store_only=store_only)
            for path in paths:
                self._files[name, path] = self._cited(name, path, answers[path])

    def source(self, name: str) -> Source:
        """Return a source of the lab at its pin."""
        table = self._lab.sources[name]
        return Source(
            name=name,
            url=table.url,
            commit=self._pins[name].commit,
            release=table.release or None,
            wheel=table.wheel or None,
        )

    def file(self, source: str, path: str) -> CitedFile | None:
        """Return what was gathered of a path in a source."""
        return self._files.get((source, path))

    def unknown_commit(self, source: str) -> str:
        """Return who said that it has no such commit as a source's pin, or ''."""
        return self._library.unknown_commit(self.source(source))

    def gathered(self) -> list[CitedFile]:
        """Return every file gathered, by source and path."""
        return [self._files[key] for key in sorted(self._files)]

    def _cited(self, name: str, path: str, answer: Found | Absent | Unreachable) -> CitedFile:
        known = self._lock.file(name, path, self._pins[name].commit)
        if isinstance(answer, Absent) and answer.definite:
            return CitedFile(name, path, State.ABSENT, near=answer.near)
        if not isinstance(answer, Found):
            lacking = isinstance(answer, Absent)
            state = State.LOCKED if known else State.LACKING if lacking else State.UNKNOWN
            near = answer.near if isinstance(answer, Absent) else []
            disputed = answer.disputed if isinstance(answer, Unreachable) else ""
            blob = known.blob if known else ""
            return CitedFile(
                name,
                path,
                state,
                blob=blob,
                near=near,
                reasons=answer.reasons,
                disputed=disputed,
            )
        return CitedFile(
            name,
            path,
            State.PROVED,
            blob=answer.blob,
            proof=_stronger(known, answer),
            provider=answer.provider,
            lines=outline.split_lines(answer.data),
            structure=lambda: self._memo.once(
                "outline", f"{path} {answer.blob}", lambda: self._outline(path, answer)
            ),
            runs=self._memo.once("runs", answer.blob, lambda: self._runs(answer)),
        )

    def _outline(self, path: str, found: Found) -> Outline:
        key = key_of(code_version(), found.blob, path.rpartition(".")[2])
        kept = self._memo.get("outline", key)
        if kept is not None:
            try:
                return msgspec.msgpack.decode(kept, type=Outline)
            except msgspec.DecodeError:
                pass
        made = outline.of_file(path, found.data)
        self._memo.put("outline", key, msgspec.msgpack.encode(made))
        return made

    def _runs(self, found: Found) -> frozenset[int]:
        key = key_of(code_version(), found.blob)
        kept = self._memo.get("runs", key)
        if kept is None:
            text = found.data.decode("utf-8", "replace")
            kept = tokens.packed(tokens.run_hashes(tokens.of_source(text)))
            self._memo.put("runs", key, kept)
        return frozenset(tokens.unpacked(kept))


def _stronger(known: LockedFile | None, found: Found) -> str:
    """Return the better proof: a git tree names the commit, a wheel may only be the same bytes."""
    if found.proof == "git" or (known and known.proof == "git" and known.blob == found.blob):
        return "git"
    return found.proof
