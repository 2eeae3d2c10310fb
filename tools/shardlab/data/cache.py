"""Indices kept on disk under the hash of what they were made of.

A file's name is the content of the corpus's index and the recipe, never a path: a corpus that is
rewritten under its old name has another key, and its old indices are not found. (Megatron hashes
the path, and serves the stale ones.) A file is renamed into place once it is whole, so whoever is
killed leaves a draft that nobody reads, and the next one to finish sweeps.

A file begins with the CRC-32 of what follows, so that a wrong byte is not served as a sample. Every
rank reads the file once from end to end before it is mapped: of 10 million samples 0.04 s, where to
make them takes 1 to 4.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import mmap
import secrets
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from shardlab.data.corpus import Array, DataError, told

FORMAT = "shardlab samples 3"
SUM = 8  # bytes of the checksum, in hexadecimal


def key(*parts: object) -> str:
    """Return the hash of arrays (their dtype and bytes) and of plain values."""
    found = hashlib.sha256(FORMAT.encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"|{part.dtype.str}{part.shape}|".encode())
            found.update(part.data)
        else:
            found.update(f"|{part!r}|".encode())
    return found.hexdigest()[:32]


def keep(path: Path, make: Callable[[], Mapping[str, Array]]) -> None:
    """Make the arrays and put them into the file, unless it is there.

    Its first line is the checksum of the rest and the arrays' names, dtypes and shapes.

    Raises:
        DataError: the disk is full or refuses; or what `make` raises.
    """
    if path.is_file():
        return
    # The wider items first: then each array begins at a multiple of its item's size.
    arrays = sorted(make().items(), key=lambda named: -named[1].itemsize)
    head = json.dumps([(name, array.dtype.str, array.shape) for name, array in arrays]).encode()
    head += b" " * (-(len(head) + SUM + 1) % 64) + b"\n"
    rest = [memoryview(head), *(array.data for _, array in arrays)]
    crc = functools.reduce(lambda crc, part: zlib.crc32(part, crc), rest, 0)
    draft = path.with_name(f"{path.name}.draft-{secrets.token_hex(8)}")
    advice = "make room there, name another cache, or none"
    with told(f"cannot keep indices in {path.parent}", advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as file:
                file.writelines([b"%08x" % crc, *rest])
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            if not path.is_file():  # or another job was faster, and has swept this draft
                raise
        for other in path.parent.glob(f"{path.name}.draft-*"):
            other.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Array]:
    """Return the arrays in the file, mapped into memory.

    Raises:
        DataError: the file is not to be seen from here, or damaged.
    """
    advice = "give a cache on a disk that all ranks share, or `disk`, those that do"
    with told(f"{path} was made, but cannot be read from here", advice):
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            right = data[:SUM] == b"%08x" % zlib.crc32(memoryview(data)[SUM:])
        except ValueError:  # it is empty
            right = False
    if not right:
        raise DataError(f"{path} is damaged: remove it, and it is made anew")
    head, found = data.readline(), dict[str, Array]()
    at = len(head)
    for name, dtype, shape in json.loads(head[SUM:]):
        found[name] = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        at += found[name].nbytes
    return found
