"""Indices kept on disk under the hash of what they were made of.

A file's name is the content of the corpus's index and the recipe, never a path: a corpus that is
rewritten under its old name has another key, and its old indices are not found. (Megatron hashes
the path, and serves the stale ones.) A file is renamed into place once it is whole. Whoever is
killed leaves a draft that nobody reads; the next to make the same writes over it, and so may two at
once: one key, the same bytes, each at its place, and a draft is never cut.

A file begins with the CRC-32 of what follows, so that a wrong byte is not served as a sample. Every
rank reads the file once from end to end before it is mapped: of 10 million samples 0.04 s, where to
make them takes 1 to 4.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from shardlab.data.corpus import Array, demand, mapped, told

FORMAT = "shardlab samples 5"
SUM = 8  # bytes of the checksum, in hexadecimal
HEAD = 512  # and of all that stands before the arrays


def key(array: Array, *about: object) -> str:
    """Return the hash of an array (its dtype and bytes) and of plain values."""
    found = hashlib.sha256(repr((FORMAT, array.dtype.str, array.shape, about)).encode())
    found.update(array.data)
    return found.hexdigest()[:32]


def keep(path: Path, make: Callable[[], Sequence[Array]]) -> None:
    """Make the arrays and put them into the file, unless it is there.

    It begins with the checksum of the rest, and the arrays' dtypes and shapes.

    Raises:
        DataError: the disk is full or refuses; or what `make` raises.
    """
    if path.is_file():
        return
    arrays, crc = make(), 0
    about = json.dumps([(array.dtype.str, array.shape) for array in arrays]).encode()
    parts = [memoryview(about.ljust(HEAD - SUM)), *(array.data for array in arrays)]
    for part in parts:
        crc = zlib.crc32(part, crc)
    draft = path.with_suffix(".draft")
    with told(f"cannot keep indices in {path.parent}", "name another folder as cache, or None"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # One call makes the draft or opens it: another job may rename it at any moment.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
            file.writelines([b"%08x" % crc, *parts])
        with suppress(FileNotFoundError):  # another job was faster
            draft.replace(path)


def load(path: Path) -> list[Array]:
    """Return the arrays in the file, mapped into memory.

    Raises:
        DataError: the file is not to be seen from here, or damaged.
    """
    data, _ = mapped(path, "give a cache on a disk that all ranks share, or `disk`, those that do")
    right = b"%08x" % zlib.crc32(data[SUM:])
    demand(data[:SUM] == right, f"{path} is damaged: remove it, and it is made anew")
    found, at = list[Array](), HEAD
    for dtype, shape in json.loads(bytes(data[SUM:HEAD])):
        found.append(np.ndarray(shape, dtype, data, at))
        at += found[-1].nbytes
    return found
