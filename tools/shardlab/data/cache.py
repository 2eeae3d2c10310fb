"""Indices kept on disk under the hash of what they were made of.

A file's name is the content of the corpus's index and the recipe, never a path: a corpus that is
rewritten under its old name has another key, and its old indices are not found. (Megatron hashes
the path, and serves the stale ones.) A file is renamed into place once it is whole, so whoever is
killed leaves a draft that nobody reads, and the next one to finish sweeps.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from shardlab.data.corpus import Array, DataError

FORMAT = "shardlab samples 2"


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
    """Make the arrays and put them into the file, unless it is there: a line that names them first.

    Raises:
        DataError: the disk is full or refuses; or what `make` raises.
    """
    if path.is_file():
        return
    # The wider items first: then each array begins at a multiple of its item's size.
    arrays = sorted(make().items(), key=lambda named: -named[1].itemsize)
    head = json.dumps([(name, array.dtype.str, array.shape) for name, array in arrays]).encode()
    draft = path.with_name(f"{path.name}.draft-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as file:
                file.write(head + b" " * (63 - len(head) % 64) + b"\n")
                for _, array in arrays:
                    file.write(array.data)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            if not path.is_file():  # or another job was faster, and has swept this draft
                raise
    except OSError as error:
        raise DataError(
            f"cannot keep indices in {path.parent}: {error.strerror or error}; make room there, "
            "name another cache, or none"
        ) from error
    for other in path.parent.iterdir():
        if other.name.startswith(f"{path.name}.draft-"):
            other.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Array]:
    """Return the arrays in the file, mapped into memory.

    Raises:
        DataError: the file is not to be seen from here, or damaged.
    """
    try:
        with path.open("rb") as file:
            head, found = file.readline(), {}
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        at = len(head)
        for name, dtype, shape in json.loads(head):
            found[name] = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
            at += found[name].nbytes
    except FileNotFoundError:
        raise DataError(
            f"{path} was made, but cannot be seen from here; give a cache on a disk that all ranks "
            "share, or `disk`, those that do"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: remove it, and it is made anew") from error
    return found
