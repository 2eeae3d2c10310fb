"""A content cache: each result is stored under the hash of the bytes that it was computed from.

Every entry can be computed again, so the cache never makes a command fail. An entry that cannot be
read or that is damaged counts as missing. If the folder cannot be written, nothing is stored.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import Struct, error
from typing import TypeVar, cast
from zlib import crc32

import msgspec

from notelab import __version__
from notelab.files import write_files

_HERE = Path(__file__).parent
# A cached result depends on the file's content and on the code in these folders; "" is notelab.
_FOLDERS = ("", "book", "cited", "lab", "page", "rules")


@cache
def code_version(*folders: str) -> str:
    """Return a digest of the modules in some of our folders; by default, those that analyse files.

    The digest includes the Python version, because Python's own parser reads the cited files.
    """
    digest = blake2b(f"{__version__} {sys.version_info[:2]}".encode(), digest_size=16)
    for folder in folders or _FOLDERS:
        with suppress(OSError):  # an installation without sources changes only as a whole
            for name in sorted(os.listdir(_HERE / folder)):  # noqa: PTH208 (half of glob's time)
                if name.endswith(".py"):
                    digest.update(blake2b((_HERE / folder / name).read_bytes()).digest())
    return digest.hexdigest()


_CHECKSUM_BYTES = 4
# The header of a cache file: the length of its table of contents, and the checksum of that table.
_HEADER = Struct("<QI")
_Contents = tuple[str, dict[str, tuple[int, int, int]]]
# A cache file above this size keeps only the entries that the last run read or wrote.
_MAX_BYTES = 64_000_000
T = TypeVar("T")


class DiskCache:
    """Entries by (kind, key) below one folder, one file per entry.

    Large or rarely read entries are stored this way. Small entries that a run reads by the thousand
    belong in a `CacheFile` (see `file_for`).
    """

    def __init__(self, root: Path | None) -> None:
        """Store entries below `root`; with None, store nothing."""
        self._root = root
        self._decoded: dict[tuple[str, str], object] = {}
        self._files: dict[Path, CacheFile] = {}

    def memoize(self, kind: str, key: str, compute: Callable[[], T]) -> T:
        """Return the value of `compute()`, which is called once per process for each (kind, key).

        The caller must not change the value.
        """
        if (kind, key) not in self._decoded:
            self._decoded[kind, key] = compute()
        return cast("T", self._decoded[kind, key])

    def file_for(self, root: Path) -> "CacheFile":
        """Return the cache file for the pages below the folder `root`."""
        if root not in self._files:
            path = self._root and self._root / f"{cache_key(str(root))[:16]}.shelf"
            self._files[root] = CacheFile(path)
        return self._files[root]

    def save(self) -> None:
        """Write every cache file that has new entries."""
        for file in self._files.values():
            file.save()

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the bytes of an entry, or None if there is no sound one."""
        if self._root is None:
            return None
        try:
            data = _entry_path(self._root, kind, key).read_bytes()
        except OSError:
            return None
        checksum, entry = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
        return entry if checksum == _checksum(entry) else None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Store `data`; a concurrent reader sees all of it or no entry."""
        if self._root is not None:
            _write(_entry_path(self._root, kind, key), _checksum(data) + data)


class CacheFile:
    """Many small entries in one file; only the entries that are requested are read.

    An entry also depends on the code that computed it, so a file written by other code counts as
    empty. The file consists of a header (the length and the checksum of the table of contents), the
    table of contents (offset, length and checksum of each entry) and the entries one after another.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the table of contents; with None, store nothing."""
        self._path = path
        self._new: dict[str, bytes] = {}
        self._requested: set[str] = set()
        self._index: dict[str, tuple[int, int, int]] = {}
        self._map: mmap | bytes = b""
        with contextlib.suppress(OSError, ValueError, error, msgspec.MsgspecError):
            if path:
                self._open(path)

    def _open(self, path: Path) -> None:
        with path.open("rb") as stream:
            data = mmap(stream.fileno(), 0, access=ACCESS_READ)
        self._start = _HEADER.size + _HEADER.unpack_from(data)[0]
        contents = data[_HEADER.size : self._start]
        if crc32(contents) == _HEADER.unpack_from(data)[1]:
            version, places = msgspec.msgpack.decode(contents, type=_Contents)
            self._map, self._index = data, places if version == code_version() else {}

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the bytes of an entry, or None if there is no sound one."""
        name = f"{kind} {key}"
        self._requested.add(name)
        return self._new[name] if name in self._new else self._read_entry(name)

    def _read_entry(self, name: str) -> bytes | None:
        place = self._index.get(name)
        if place is None:
            return None
        offset, length, checksum = place
        data = self._map[self._start + offset : self._start + offset + length]
        return data if crc32(data) == checksum else None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Add an entry to this process's cache; `save` writes it to the file."""
        self._new[f"{kind} {key}"] = data

    def save(self) -> None:
        """Write the file if an entry was added."""
        if not self._new or self._path is None:
            return
        names = self._index if len(self._map) < _MAX_BYTES else self._requested
        entries = {name: data for name in names if (data := self._read_entry(name)) is not None}
        entries |= self._new
        places, offset = {}, 0
        for name, data in entries.items():
            places[name] = offset, len(data), crc32(data)
            offset += len(data)
        contents = msgspec.msgpack.encode((code_version(), places))
        header = _HEADER.pack(len(contents), crc32(contents))
        if isinstance(self._map, mmap):
            self._map.close()  # some systems can't replace an open file
        _write(self._path, b"".join((header, contents, *entries.values())))
        self._map, self._index, self._new = b"", {}, entries


def get_or_compute(
    cache: DiskCache | CacheFile, kind: str, key: str, type: type[T], compute: Callable[[], T]
) -> T:
    """Return the cached value of type `type`; if there is none, compute it and store it."""
    value = get_decoded(cache, kind, key, type)
    if value is None:
        value = compute()
        cache.put(kind, key, msgspec.msgpack.encode(value))
    return value


def get_decoded(cache: DiskCache | CacheFile, kind: str, key: str, type: type[T]) -> T | None:
    """Return the cached value, decoded as `type`, or None if there is no sound one."""
    data = cache.get(kind, key)
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=type)
    except msgspec.MsgspecError:
        return None


def _entry_path(root: Path, kind: str, key: str) -> Path:
    return root / kind / key[:2] / key[2:]


def _write(path: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_files({path: data})


def _checksum(data: bytes) -> bytes:
    return crc32(data).to_bytes(_CHECKSUM_BYTES, "big")


def cache_key(*parts: bytes | str) -> str:
    """Return the key for an ordered list of inputs."""
    encoded = [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]
    sizes = b"".join([len(data).to_bytes(8, "big") for data in encoded])
    return blake2b(sizes + b"".join(encoded), digest_size=20).hexdigest()
