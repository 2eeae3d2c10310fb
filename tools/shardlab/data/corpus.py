"""A corpus on disk: `PREFIX.bin`, tokens end to end, and `PREFIX.idx`, where each begins.

The index, little-endian: MMIDIDX and two zeros, version (u64, 1), dtype's code (u8), sequences
(u64), documents + 1 (u64); then each sequence's length (i32) and first byte (i64), the sequence at
which each document ends (i64), and, of a multimodal corpus, each sequence's mode (i8). Megatron's
is `IndexedDataset` (megatron/core/datasets/indexed_dataset.py).
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

MAGIC = b"MMIDIDX\0\0"
HEAD = struct.Struct("<9sQBQQ")
# A dtype's code is its place here, counted from 1.
DTYPES = [np.dtype(f"<{name}") for name in ("u1", "i1", "i2", "i4", "i8", "f8", "f4", "u2")]
PAIR = "give a .bin and .idx's prefix, or write them anew: a writer cut short leaves no .idx"
CHUNK = 1 << 20  # what is checked, converted or copied at a time: memory stays constant


class DataError(ValueError):
    """Data that cannot be written, read or sampled as asked; says what to do."""


def demand(right: object, otherwise: str) -> None:
    """Refuse what isn't right."""
    if not right:
        raise DataError(otherwise)


@contextmanager
def told(what: str, advice: str) -> Iterator[None]:
    """Tell as a DataError what the system refuses: what failed, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{what}: {error.strerror or error}; {advice}") from error


def mapped(path: Path | str, advice: str) -> memoryview:
    """Return a file's bytes, mapped into memory for as long as an array of them lives."""
    with told(f"{path} cannot be read", advice):
        empty = not Path(path).stat().st_size  # which has no mapping
        return memoryview(b"") if empty else np.memmap(path, np.uint8, "r").data


class Corpus:
    """A corpus, mapped into memory and checked whole but for the tokens themselves.

    There is no `close`: the mapping lives as long as an array of it does, so none can outlive it.

    Attributes:
        prefix: of the two files.
        tokens: [tokens], all of them, read-only.
        lengths: [sequences], int32.
        pointers: [sequences], int64: the byte at which each begins.
        documents: [documents + 1], int64: the sequences at which they begin and end.
        modes: [sequences], int8; None where the index has none.

    Raises:
        DataError: a file is missing, damaged, or not the other one's.
    """

    def __init__(self, prefix: Path | str) -> None:
        self.prefix = str(prefix)
        index, data = mapped(f"{prefix}.idx", PAIR), mapped(f"{prefix}.bin", PAIR)
        size = len(index)
        self._demand(size >= HEAD.size, f"has {size} bytes; a header alone takes {HEAD.size}")
        magic, version, code, count, ends = HEAD.unpack_from(index)
        self._demand(magic == MAGIC, f"begins with {magic!r}, an index with {MAGIC!r}")
        self._demand(version == 1, f"has version {version}; version 1 is read here")
        self._demand(0 < code < 9, f"has dtype code {code}; those known are 1 to 8")
        modes = HEAD.size + 12 * count + 8 * ends
        right = count and ends and size in (modes, modes + count)
        said = f"says {count} sequences and {ends - 1} documents (1 or more each), which take"
        self._demand(right, f"{said} {modes} bytes ({count} more with modes), and has {size}")
        self.lengths: Array = np.frombuffer(index, "<i4", count, HEAD.size)
        self.pointers: Array = np.frombuffer(index, "<i8", count, HEAD.size + 4 * count)
        self.documents: Array = np.frombuffer(index, "<i8", ends, HEAD.size + 12 * count)
        self.modes = np.frombuffer(index, "i1", count, modes) if size > modes else None
        self._check(DTYPES[code - 1].itemsize, len(data))
        self.tokens: Array = np.frombuffer(data, DTYPES[code - 1])

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.lengths)

    def __getitem__(self, sequence: int) -> Array:
        """Return a sequence's tokens: a view of the file, not a copy."""
        if not 0 <= sequence < len(self.lengths):
            raise IndexError(f"sequence {sequence} of {self.prefix}: it has 0 to {len(self) - 1}")
        begin = self.pointers.item(sequence) // self.tokens.itemsize
        return self.tokens[begin : begin + self.lengths.item(sequence)]

    def _check(self, itemsize: int, size: int) -> None:
        """Refuse an index whose parts contradict each other or the tokens' file."""
        end, bounds = 0, self.documents
        for at in range(0, len(self), CHUNK):
            lengths, found = self.lengths[at : at + CHUNK], self.pointers[at : at + CHUNK]
            sizes = lengths.astype(np.int64) * itemsize
            begins = end + np.cumsum(sizes) - sizes
            wrong = (sizes < 0) | (begins != found)
            bad = int(wrong.argmax())
            said = f"puts sequence {at + bad}, of length {lengths[bad]}, at byte {found[bad]}; the"
            more = f"one before ends at {begins[bad]}: sequences must not overlap or leave gaps"
            self._demand(not wrong[bad], f"{said} {more}")
            end = int(begins[-1] + sizes[-1])
        right = bounds[0] == 0 and bounds[-1] == len(self) and (bounds[1:] >= bounds[:-1]).all()
        said = f"has documents from {bounds[0]} to {bounds[-1]}; they must go in order, 0 to"
        self._demand(right, f"{said} {len(self)}")
        said = f"{self.prefix}.bin has {size} bytes, and its index says {end}: cut short, or of"
        demand(0 < size == end, f"{said} another corpus; write the pair anew")

    def _demand(self, right: object, otherwise: str) -> None:
        demand(right, f"{self.prefix}.idx {otherwise}: damaged, or no index; write the pair anew")
