"""A cache of indices on disk, in files named by the hash of the indices' inputs.

A file's name is a hash of the corpus's index and the recipe, not of a path. A corpus that is
rewritten under its old name has another hash, so its old indices aren't used. (Megatron hashes the
path and returns the stale ones.) A file is renamed into place once it is complete. A process that
is killed leaves a draft, which no process reads. The next builder of the same indices overwrites
it, even two of them at once: both write the same bytes at the same offsets, and none truncates.

A file begins with the CRC-32 of the rest, so a wrong byte is never used as a sample. Every rank
reads the whole file once before it maps it. For 10 million samples that takes 0.04 s, and building
them takes 1 to 4 s.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from shardlab.data.corpus import Array, map_file, require, wrap_os_errors

FORMAT = "shardlab samples 5"
SUM = 8  # bytes of the checksum, in hexadecimal
HEAD = 512  # bytes before the arrays


def hash_of(array: Array, *values: object) -> str:
    """Return the hash of an array (its dtype and bytes) and of plain values."""
    digest = hashlib.sha256(repr((FORMAT, array.dtype.str, array.shape, values)).encode())
    digest.update(array.data)
    return digest.hexdigest()[:32]


def store(path: Path, make: Callable[[], Sequence[Array]]) -> None:
    """Call `make` and write its arrays into the file, unless the file exists.

    The file begins with the checksum of the rest, then the arrays' dtypes and shapes.

    Raises:
        DataError: the file can't be written; or an error of `make`.
    """
    if path.is_file():
        return
    arrays, crc = make(), 0
    header = json.dumps([(array.dtype.str, array.shape) for array in arrays]).encode()
    parts = [memoryview(header.ljust(HEAD - SUM)), *(array.data for array in arrays)]
    for part in parts:
        crc = zlib.crc32(part, crc)
    draft = path.with_suffix(".draft")
    with wrap_os_errors(
        f"cannot keep indices in {path.parent}", "name another folder as cache, or None"
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        # One call makes the draft or opens it: another job may rename it at any moment.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
            file.writelines([b"%08x" % crc, *parts])
        with suppress(FileNotFoundError):  # another job was faster
            draft.replace(path)


def load(path: Path) -> list[Array]:
    """Return the arrays in the file, mapped into memory.

    Raises:
        DataError: the file can't be read from here, or is damaged.
    """
    data, _ = map_file(
        path, "give a cache on a disk that all ranks share, or `disk`, those that do"
    )
    checksum = b"%08x" % zlib.crc32(data[SUM:])
    require(data[:SUM] == checksum, f"{path} is damaged: remove it, and it is made anew")
    arrays, offset = list[Array](), HEAD
    for dtype, shape in json.loads(bytes(data[SUM:HEAD])):
        arrays.append(np.ndarray(shape, dtype, data, offset))
        offset += arrays[-1].nbytes
    return arrays
