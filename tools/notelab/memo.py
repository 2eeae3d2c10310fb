"""A content cache: what was computed from a file's bytes, kept under the hash of those bytes.

Everything in it can be computed again, so nothing here ever fails a command: an entry that can't
be read, or isn't what was written, is no entry; a folder that can't be written keeps nothing.
"""

import contextlib
from collections.abc import Callable
from hashlib import blake2b
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import Struct, error
from typing import TypeVar, cast
from zlib import crc32

import msgspec

from notelab.code_version import code_version
from notelab.whole_files import write_together

_CHECK = 4
_HEAD = Struct("<QI")  # of a shelf: the length of its table of contents, and that one's checksum
_Contents = tuple[str, dict[str, tuple[int, int, int]]]
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
        if self._root is None:
            return None
        try:
            data = _place(self._root, kind, key).read_bytes()
        except OSError:
            return None
        return data[_CHECK:] if data[:_CHECK] == _checksum(data[_CHECK:]) else None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep `data`; a reader sees all of it or nothing."""
        if self._root is not None:
            _write(_place(self._root, kind, key), _checksum(data) + data)


class Shelf:
    """Many small entries in one file, of which only those asked for are read.

    They hang on the code that made them too: a shelf of other code is empty. The file is a table
    of contents (how long it is, its checksum, then each entry's place, length and checksum), and
    the entries one after another.
    """

    def __init__(self, file: Path | None) -> None:
        """Read the table of contents; None is a shelf that keeps nothing."""
        self._file = file
        self._put: dict[str, bytes] = {}
        self._asked: set[str] = set()
        self._places: dict[str, tuple[int, int, int]] = {}
        self._map: mmap | bytes = b""
        with contextlib.suppress(OSError, ValueError, error, msgspec.MsgspecError):
            if file:
                self._open(file)

    def _open(self, file: Path) -> None:
        with file.open("rb") as stream:
            data = mmap(stream.fileno(), 0, access=ACCESS_READ)
        self._start = _HEAD.size + _HEAD.unpack_from(data)[0]
        contents = data[_HEAD.size : self._start]
        if crc32(contents) == _HEAD.unpack_from(data)[1]:
            version, places = msgspec.msgpack.decode(contents, type=_Contents)
            self._map, self._places = data, places if version == code_version() else {}

    def get(self, kind: str, key: str) -> bytes | None:
        """Return what was put, or None."""
        name = f"{kind} {key}"
        self._asked.add(name)
        return self._put[name] if name in self._put else self._kept(name)

    def _kept(self, name: str) -> bytes | None:
        place = self._places.get(name)
        if place is None:
            return None
        at, length, check = place
        data = self._map[self._start + at : self._start + at + length]
        return data if crc32(data) == check else None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep `data` from now on, and for good when the shelf is saved."""
        self._put[f"{kind} {key}"] = data

    def save(self) -> None:
        """Write the shelf if something was put on it."""
        if not self._put or self._file is None:
            return
        names = self._places if len(self._map) < _MOST else self._asked
        kept = {name: data for name in names if (data := self._kept(name)) is not None}
        kept |= self._put
        places, at = {}, 0
        for name, data in kept.items():
            places[name] = at, len(data), crc32(data)
            at += len(data)
        contents = msgspec.msgpack.encode((code_version(), places))
        head = _HEAD.pack(len(contents), crc32(contents))
        if isinstance(self._map, mmap):
            self._map.close()  # where an open file can't be replaced
        _write(self._file, b"".join((head, contents, *kept.values())))
        self._map, self._places, self._put = b"", {}, kept


def remembered(where: Memo | Shelf, kind: str, key: str, type: type[T], make: Callable[[], T]) -> T:
    """Return what was kept of a type under a key, else what `make` makes, and keep it."""
    made = recalled(where, kind, key, type)
    if made is None:
        made = make()
        where.put(kind, key, msgspec.msgpack.encode(made))
    return made


def recalled(where: Memo | Shelf, kind: str, key: str, type: type[T]) -> T | None:
    """Return what was kept of a type under a key, or None."""
    kept = where.get(kind, key)
    try:
        return None if kept is None else msgspec.msgpack.decode(kept, type=type)
    except msgspec.MsgspecError:
        return None


def _place(root: Path, kind: str, key: str) -> Path:
    return root / kind / key[:2] / key[2:]


def _write(file: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_together({file: data})


def _checksum(data: bytes) -> bytes:
    return crc32(data).to_bytes(_CHECK, "big")


def key_of(*parts: bytes | str) -> str:
    """Return the key for an ordered list of inputs."""
    encoded = [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]
    sizes = b"".join([len(data).to_bytes(8, "big") for data in encoded])
    return blake2b(sizes + b"".join(encoded), digest_size=20).hexdigest()
