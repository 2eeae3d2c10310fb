"""A content cache: what was computed from a file's bytes, kept under the hash of those bytes.

Everything in it can be computed again, so nothing here ever fails a command: an entry that can't
be read, or isn't what was written, is no entry; a folder that can't be written keeps nothing.
"""

import contextlib
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, cast
from zlib import crc32

import msgspec

from notelab.code_version import code_version
from notelab.whole_files import write_together

_CHECK = 4
_MOST = 64_000_000  # bytes of a shelf, beyond which it keeps only what its last run asked for
T = TypeVar("T")


class Memo:
    """Entries by (kind, key) under one folder, a file each: for what is large, or asked for once.

    What is small and asked for by the thousand stands on a shelf.
    """

    def __init__(self, root: Path | None) -> None:
        """Keep entries under `root`; None keeps nothing."""
        self._root = root
        self._decoded: dict[tuple[str, str], object] = {}
        self._shelves: dict[Path, Shelf] = {}

    def once(self, kind: str, key: str, make: Callable[[], T]) -> T:
        """Return what `make` makes, made once in this process; for values that nobody changes."""
        known = self._decoded.get((kind, key))
        if known is None:
            known = self._decoded[kind, key] = make()
        return cast("T", known)

    def shelf(self, folder: Path) -> "Shelf":
        """Return the shelf of all that a folder's pages hold."""
        if folder not in self._shelves:
            file = self._root and self._root / f"{key_of(str(folder))[:16]}.shelf"
            self._shelves[folder] = Shelf(file)
        return self._shelves[folder]

    def save(self) -> None:
        """Keep what was put on the shelves."""
        for shelf in self._shelves.values():
            shelf.save()

    def get(self, kind: str, key: str) -> bytes | None:
        """Return what was put, or None."""
        return _read(self._place(kind, key)) if self._root else None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep `data`; a reader sees all of it or nothing."""
        if self._root:
            _write(self._place(kind, key), data)

    def _place(self, kind: str, key: str) -> Path:
        assert self._root
        return self._root / kind / key[:2] / key[2:]


class Shelf:
    """Many small entries in one file, read and written as a whole.

    They hang on the code that made them too: a shelf of other code is empty.
    """

    def __init__(self, file: Path | None) -> None:
        """Read the shelf; None is one that keeps nothing."""
        self._file = file
        self._kept: dict[str, bytes] = {}
        self._asked: dict[str, bytes] = {}
        self._changed = False
        data = _read(file) if file else None
        with contextlib.suppress(msgspec.MsgspecError):
            version, kept = msgspec.msgpack.decode(data or b"", type=tuple[str, dict[str, bytes]])
            self._kept = kept if version == code_version() else {}

    def get(self, kind: str, key: str) -> bytes | None:
        """Return what was put, or None."""
        name = f"{kind} {key}"
        found = self._kept.get(name)
        if found is not None:
            self._asked[name] = found
        return found

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep `data` from now on, and for good when the shelf is saved."""
        name = f"{kind} {key}"
        self._kept[name] = self._asked[name] = data
        self._changed = True

    def save(self) -> None:
        """Write the shelf if something was put on it."""
        if not self._changed or self._file is None:
            return
        size = sum(map(len, self._kept.values()))
        kept = self._kept if size < _MOST else self._asked
        _write(self._file, msgspec.msgpack.encode((code_version(), kept)))
        self._changed = False


def _read(file: Path) -> bytes | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    return data[_CHECK:] if data[:_CHECK] == _checksum(data[_CHECK:]) else None


def _write(file: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_together({file: _checksum(data) + data})


def _checksum(data: bytes) -> bytes:
    return crc32(data).to_bytes(_CHECK, "big")


def key_of(*parts: bytes | str) -> str:
    """Return the key for an ordered list of inputs."""
    digest = blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
