"""A corpus on disk: `PREFIX.bin`, tokens end to end, and `PREFIX.idx`, where each begins.

The index, little-endian: MMIDIDX and two zeros, version (u64, 1), dtype's code (u8), sequences
(u64), documents + 1 (u64); then each sequence's length (i32) and first byte (i64), the sequence at
which each document ends (i64), and, of a multimodal corpus, each sequence's mode (i8). Megatron's
is `IndexedDataset` (megatron/core/datasets/indexed_dataset.py).

Opening a corpus maps both files and checks the header, the sizes, the ends and the first sequences.
Each other sequence is checked when it is read, and `Corpus.check` checks all of them.
"""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Stamp = tuple[int, int]  # a file's size in bytes, and when it was changed, in ns

MAGIC = b"MMIDIDX\0\0"
HEAD = struct.Struct("<9sQBQQ")
# A dtype's code is its place here, counted from 1.
DTYPES = [np.dtype(f"<{name}") for name in ("u1", "i1", "i2", "i4", "i8", "f8", "f4", "u2")]
# DeepSpeed's codes: 6 to 8 of its present releases (runtime/data_pipeline/data_sampling/
# indexed_dataset.py), which Megatron has for floats and uint16; 9 and 10 of earlier releases.
DEEPSPEED = {6: "<u2", 7: "<u4", 8: "<u8", 9: "<u4", 10: "<u8"}
PAIR = "give a .bin and .idx's prefix, or write them anew: a writer cut short leaves no .idx"
CHUNK = 1 << 20  # what is checked, converted or copied at a time: memory stays constant
OPENED = 1 << 12  # sequences, documents and tokens that are looked at when a corpus is opened
ROOM, ACCESS = "make room, or ", "get access to it, or "
FIRST = {errno.ENOSPC: ROOM, errno.EDQUOT: ROOM, errno.EACCES: ACCESS, errno.EPERM: ACCESS}


class DataError(ValueError):
    """Data that cannot be written, read or sampled as asked; says what to do."""


def demand(right: object, otherwise: str) -> None:
    """Refuse what isn't right."""
    if not right:
        raise DataError(otherwise)


@contextmanager
def told(what: str, advice: str) -> Iterator[None]:
    """Raise as a DataError what the system refuses: what failed, why, and what to do."""
    try:
        yield
    except OSError as error:
        first = FIRST.get(error.errno or 0, "")
        raise DataError(f"{what}: {error.strerror or error}; {first}{advice}") from error


def mapped(path: Path | str, advice: str) -> tuple[memoryview, Stamp]:
    """Return a file's bytes, mapped while an array of them lives, and its size and time."""
    with told(f"{path} cannot be read", advice), Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        data = np.memmap(file, np.uint8, "r").data if status.st_size else memoryview(b"")
        return data, (status.st_size, status.st_mtime_ns)


class Corpus:
    """A corpus, mapped into memory.

    There is no `close`: the mapping lives as long as an array of it does, so none can outlive it.
    A pickled corpus holds the path, and refuses to open there if the files have changed.

    Attributes:
        prefix: of the two files.
        tokens: [tokens], all of them, read-only.
        lengths: [sequences], int32.
        pointers: [sequences], int64: the byte at which each begins.
        documents: [documents + 1], int64: the sequences at which they begin and end. A document
            without a token may have no sequence.
        modes: [sequences], int8; None where the index has none.

    Raises:
        DataError: a file is missing, damaged, or not the other one's.
    """

    def __init__(self, prefix: Path | str) -> None:
        self.prefix = str(prefix)
        index, stamp = mapped(f"{prefix}.idx", PAIR)
        data, data_stamp = mapped(f"{prefix}.bin", PAIR)
        self._stamps, size = (stamp, data_stamp), len(index)
        self._demand(size >= HEAD.size, f"has {size} bytes; a header alone takes {HEAD.size}")
        magic, version, code, count, ends = HEAD.unpack_from(index)
        self._demand(magic == MAGIC, f"begins with {magic!r}, an index with {MAGIC!r}")
        self._demand(version == 1, f"has version {version}; version 1 is read here")
        self._demand(0 < code < 11, f"has dtype code {code}; those known are 1 to 10")
        modes = HEAD.size + 12 * count + 8 * ends
        right = count and ends and size in (modes, modes + count)
        said = f"says {count} sequences and {ends - 1} documents (1 or more each), which take"
        self._demand(right, f"{said} {modes} bytes ({count} more with modes), and has {size}")
        self.lengths: Array = np.frombuffer(index, "<i4", count, HEAD.size)
        self.pointers: Array = np.frombuffer(index, "<i8", count, HEAD.size + 4 * count)
        self.documents: Array = np.frombuffer(index, "<i8", ends, HEAD.size + 12 * count)
        self.modes = np.frombuffer(index, "i1", count, modes) if size > modes else None
        self._size = len(data)
        dtype = self._dtype(code, data)
        self._check(dtype.itemsize, OPENED)
        self.tokens: Array = np.frombuffer(data, dtype)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.lengths)

    def __getitem__(self, sequence: int) -> Array:
        """Return a sequence's tokens: a view of the file, not a copy.

        Raises:
            DataError: the index contradicts itself there.
        """
        if not 0 <= sequence < len(self.lengths):
            raise IndexError(f"sequence {sequence} of {self.prefix}: it has 0 to {len(self) - 1}")
        begin, length = self.span(sequence)
        return self.tokens[begin : begin + length]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, and what tells whether other files lie there."""
        return _reopen, (str(Path(self.prefix).absolute()), self._stamps)

    def span(self, sequence: int) -> tuple[int, int]:
        """Return a sequence's first token and its length.

        Raises:
            DataError: the sequence does not end where the next one begins.
        """
        pointers, size = self.pointers, self.tokens.itemsize
        begin, length = pointers.item(sequence), self.lengths.item(sequence)
        last = sequence + 1 == len(pointers)
        if begin + length * size != (self._size if last else pointers.item(sequence + 1)) or (
            begin < 0 or length < 0 or begin % size
        ):
            self.check()
        return begin // size, length

    def check(self, vocabulary: int | None = None) -> None:
        """Check the whole index, and the tokens where a vocabulary (or 0, for any) is given.

        Raises:
            DataError: the index contradicts itself, or a token is negative, no number, or not below
                the vocabulary.
        """
        self._check(self.tokens.itemsize, len(self) + len(self.documents))
        for at in range(0, 0 if vocabulary is None else len(self.tokens), CHUNK):
            part = self.tokens[at : at + CHUNK]
            right = (part >= 0) & (part < (vocabulary or np.inf))  # of which no NaN is
            place = int(right.argmin())
            said = f"{self.prefix}: token {at + place} is {part[place]}, which a vocabulary of"
            more = "doesn't hold: it was made with another tokenizer"
            demand(right[place], f"{said} {vocabulary or 'any size'} {more}")

    def _dtype(self, code: int, data: memoryview) -> np.dtype[Any]:
        """Return the tokens' dtype: Megatron's for its code, or DeepSpeed's if that fits alone."""
        if code not in DEEPSPEED or code > len(DTYPES):
            return np.dtype(DEEPSPEED.get(code, DTYPES[(code - 1) % len(DTYPES)]))
        foreign = np.dtype(DEEPSPEED[code])
        first = int((self.lengths[:OPENED] != 0).argmax())
        ends = *self.pointers[first : first + 2].tolist(), self._size
        fits = ends[1] - ends[0] == int(self.lengths[first]) * foreign.itemsize > 0
        if fits and foreign.itemsize == DTYPES[code - 1].itemsize:
            # Both have four bytes. Tokens below 2^23 are, read as floats, all subnormal.
            tokens = np.frombuffer(data, "<u4", min(OPENED, len(data) // 4))
            fits = 0 < tokens.max(initial=0) < 1 << 23
        return foreign if fits else DTYPES[code - 1]

    def _check(self, itemsize: int, most: int) -> None:
        """Refuse an index whose parts contradict each other or the tokens' file.

        Args:
            itemsize: of a token, in bytes.
            most: sequences and documents to look at, from the first on; the ends are always.
        """
        end, bounds, count = 0, self.documents, min(most, len(self))
        for at in range(0, count, CHUNK):
            lengths, found = (
                row[at : min(at + CHUNK, count)] for row in (self.lengths, self.pointers)
            )
            sizes = lengths.astype(np.int64) * itemsize
            begins = end + np.cumsum(sizes) - sizes
            wrong = (sizes < 0) | (begins != found)
            bad = int(wrong.argmax())
            said = f"puts sequence {at + bad}, of length {lengths[bad]}, at byte {found[bad]}; the"
            more = f"one before ends at {begins[bad]}: sequences must not overlap or leave gaps"
            self._demand(not wrong[bad], f"{said} {more}")
            end = int(begins[-1] + sizes[-1])
        ordered = (np.diff(bounds[: most + 1]) >= 0).all()
        right = bounds[0] == 0 and bounds[-1] == len(self) and ordered
        said = f"has documents from {bounds[0]} to {bounds[-1]}; they must go in order, 0 to"
        self._demand(right, f"{said} {len(self)}")
        end = int(self.pointers[-1]) + int(self.lengths[-1]) * itemsize
        said = f"{self.prefix}.bin has {self._size} bytes, and its index says {end}: cut short, or"
        demand(0 < self._size == end, f"{said} of another corpus; write both files again")

    def _demand(self, right: object, otherwise: str) -> None:
        demand(
            right,
            f"{self.prefix}.idx {otherwise}: damaged, or not an index; write both files again",
        )


def _reopen(prefix: str, stamps: tuple[Stamp, Stamp]) -> Corpus:
    """Return an unpickled corpus, whose files must be those that were pickled."""
    corpus = Corpus(prefix)
    demand(corpus._stamps == stamps, f"{prefix} has changed since it was pickled: open it anew")
    return corpus
