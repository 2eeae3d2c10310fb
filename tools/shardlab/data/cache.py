"""Indices kept on disk under the hash of what they were made of.

The name of a folder is the content of the corpus's index and the recipe, never a path: a corpus
that is rewritten under its old name has another key, and its old indices are not found. (Megatron
hashes the path, and serves the stale ones.) A folder is renamed into place once it is whole, so
whoever is killed leaves a draft that nobody reads, and the next one to finish sweeps.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from shardlab.data.corpus import Array, DataError

FORMAT = "shardlab samples 1"


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


def keep(folder: Path, make: Callable[[], Mapping[str, Array]]) -> None:
    """Make the arrays and put them into `folder`, unless it is there.

    Raises:
        DataError: the disk is full or refuses; or what `make` raises.
    """
    if folder.is_dir():
        return
    arrays = make()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.draft-", dir=folder.parent))
        try:
            draft.chmod(0o755)  # as the folders around: other users may train from it
            for name, array in arrays.items():
                np.save(draft / f"{name}.npy", array, allow_pickle=False)
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not folder.is_dir():  # or another job was faster, and has swept this draft
                raise
    except OSError as error:
        raise DataError(
            f"cannot keep indices in {folder.parent}: {error.strerror or error}; make room there, "
            "name another cache, or none"
        ) from error
    for left in folder.parent.glob(f"{folder.name}.draft-*"):
        shutil.rmtree(left, ignore_errors=True)


def load(folder: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """Return the arrays in `folder`, mapped into memory.

    Raises:
        DataError: the folder is not to be seen from here, or damaged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} was made, but cannot be seen from here")
    with contextlib.suppress(OSError, ValueError, EOFError):
        return {
            name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in names
        }
    raise DataError(f"{folder} is damaged: remove it, and it is made anew")
