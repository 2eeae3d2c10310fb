"""A corpus on disk: `PREFIX.bin` has all tokens, `PREFIX.idx` the begin of each sequence.

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
Stamp = tuple[int, int]  # a file's size in bytes, and its modification time in ns

MAGIC = b"MMIDIDX\0\0"
HEAD = struct.Struct("<9sQBQQ")
# A dtype's code is its index here, counted from 1.
DTYPES = [np.dtype(f"<{name}") for name in ("u1", "i1", "i2", "i4", "i8", "f8", "f4", "u2")]
# DeepSpeed's codes: 6 to 8 of its present releases (runtime/data_pipeline/data_sampling/
# indexed_dataset.py), which Megatron has for floats and uint16; 9 and 10 of earlier releases.
DEEPSPEED = {6: "<u2", 7: "<u4", 8: "<u8", 9: "<u4", 10: "<u8"}
PAIR_ADVICE = "give a .bin and .idx's prefix, or write them anew: a writer cut short leaves no .idx"
CHUNK = 1 << 20  # elements that are checked at a time, so that memory stays constant
CHECKED_AT_OPENING = 1 << 12  # sequences, documents and tokens
ROOM, ACCESS = "make room, or ", "get access to it, or "
HINTS = {errno.ENOSPC: ROOM, errno.EDQUOT: ROOM, errno.EACCES: ACCESS, errno.EPERM: ACCESS}


class DataError(ValueError):
    """Raised when data can't be written, read or sampled; the message says what to do."""


def require(condition: object, message: str) -> None:
    """Raise DataError with `message` unless the condition holds."""
    if not condition:
        raise DataError(message)


@contextmanager
def wrap_os_errors(action: str, advice: str) -> Iterator[None]:
    """Context manager: raise an OSError inside as a DataError that says what to do.

    Args:
        action: what failed, such as "cannot write PREFIX".
        advice: what the user can do.
    """
    try:
        yield
    except OSError as error:
        hint = HINTS.get(error.errno or 0, "")
        raise DataError(f"{action}: {error.strerror or error}; {hint}{advice}") from error


def map_file(path: Path | str, advice: str) -> tuple[memoryview, Stamp]:
    """Return a file's bytes, mapped into memory, and its size and modification time."""
    with wrap_os_errors(f"{path} cannot be read", advice), Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        data = np.memmap(file, np.uint8, "r").data if status.st_size else memoryview(b"")
        return data, (status.st_size, status.st_mtime_ns)


class Corpus:
    """A corpus, mapped into memory.

    There is no `close`: the mapping lives as long as any array of it. A pickled corpus contains the
    path, and refuses to open files that have changed since.

    Attributes:
        prefix: the path of both files, without `.bin` and `.idx`.
        tokens: [tokens], all tokens, read-only.
        lengths: [sequences], int32: tokens of each sequence.
        pointers: [sequences], int64: the byte at which each sequence begins.
        documents: [documents + 1], int64: the sequences at which documents begin and end. A
            document without tokens may have no sequence.
        modes: [sequences], int8; None if the index has no modes.

    Raises:
        DataError: a file is missing or damaged, or the two files don't belong together.
    """

    def __init__(self, prefix: Path | str) -> None:
        self.prefix = str(prefix)
        index, stamp = map_file(f"{prefix}.idx", PAIR_ADVICE)
        data, data_stamp = map_file(f"{prefix}.bin", PAIR_ADVICE)
        self._stamps, size = (stamp, data_stamp), len(index)
        self._require(size >= HEAD.size, f"has {size} bytes; a header alone takes {HEAD.size}")
        magic, version, code, count, ends = HEAD.unpack_from(index)
        self._require(magic == MAGIC, f"begins with {magic!r}, an index with {MAGIC!r}")
        self._require(version == 1, f"has version {version}; version 1 is read here")
        self._require(0 < code < 11, f"has dtype code {code}; those known are 1 to 10")
        modes = HEAD.size + 12 * count + 8 * ends
        consistent = count and ends and size in (modes, modes + count)
        counts_text = (
            f"says {count} sequences and {ends - 1} documents (1 or more each), which take"
        )
        self._require(
            consistent, f"{counts_text} {modes} bytes ({count} more with modes), and has {size}"
        )
        self.lengths: Array = np.frombuffer(index, "<i4", count, HEAD.size)
        self.pointers: Array = np.frombuffer(index, "<i8", count, HEAD.size + 4 * count)
        self.documents: Array = np.frombuffer(index, "<i8", ends, HEAD.size + 12 * count)
        self.modes = np.frombuffer(index, "i1", count, modes) if size > modes else None
        self._size = len(data)
        dtype = self._dtype(code, data)
        self._check(dtype.itemsize, CHECKED_AT_OPENING)
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
        """Pickle the path, and the files' sizes and modification times."""
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
        """Check the whole index, and the tokens if a vocabulary is given.

        Args:
            vocabulary: the vocabulary's size; 0 for any size; None to leave the tokens unchecked.

        Raises:
            DataError: the index contradicts itself, or a token is negative, NaN or not below the
                vocabulary.
        """
        self._check(self.tokens.itemsize, len(self) + len(self.documents))
        for begin in range(0, 0 if vocabulary is None else len(self.tokens), CHUNK):
            part = self.tokens[begin : begin + CHUNK]
            valid = (part >= 0) & (part < (vocabulary or np.inf))  # of which no NaN is
            place = int(valid.argmin())
            token_text = (
                f"{self.prefix}: token {begin + place} is {part[place]}, which a vocabulary of"
            )
            reason = "doesn't hold: it was made with another tokenizer"
            require(valid[place], f"{token_text} {vocabulary or 'any size'} {reason}")

    def _dtype(self, code: int, data: memoryview) -> np.dtype[Any]:
        """Return the tokens' dtype: Megatron's for the code, or DeepSpeed's if only that fits."""
        if code not in DEEPSPEED or code > len(DTYPES):
            return np.dtype(DEEPSPEED.get(code, DTYPES[(code - 1) % len(DTYPES)]))
        foreign = np.dtype(DEEPSPEED[code])
        first = int((self.lengths[:CHECKED_AT_OPENING] != 0).argmax())
        ends = *self.pointers[first : first + 2].tolist(), self._size
        fits = ends[1] - ends[0] == int(self.lengths[first]) * foreign.itemsize > 0
        if fits and foreign.itemsize == DTYPES[code - 1].itemsize:
            # Both dtypes have four bytes. Tokens below 2^23 would all be subnormal floats.
            tokens = np.frombuffer(data, "<u4", min(CHECKED_AT_OPENING, len(data) // 4))
            fits = 0 < tokens.max(initial=0) < 1 << 23
        return foreign if fits else DTYPES[code - 1]

    def _check(self, itemsize: int, limit: int) -> None:
        """Refuse an index whose parts contradict each other or the tokens' file.

        Args:
            itemsize: bytes of a token.
            limit: the number of sequences and documents to check, from the first on; the ends are
                always checked.
        """
        end, bounds, count = 0, self.documents, min(limit, len(self))
        for begin in range(0, count, CHUNK):
            lengths, pointers = (
                row[begin : min(begin + CHUNK, count)] for row in (self.lengths, self.pointers)
            )
            sizes = lengths.astype(np.int64) * itemsize
            begins = end + np.cumsum(sizes) - sizes
            wrong = (sizes < 0) | (begins != pointers)
            bad = int(wrong.argmax())
            text = f"puts sequence {begin + bad}, of length {lengths[bad]}, at byte {pointers[bad]}"
            reason = (
                f"the one before ends at {begins[bad]}: sequences must not overlap or leave gaps"
            )
            self._require(not wrong[bad], f"{text}; {reason}")
            end = int(begins[-1] + sizes[-1])
        ordered = (np.diff(bounds[: limit + 1]) >= 0).all()
        valid = bounds[0] == 0 and bounds[-1] == len(self) and ordered
        text = f"has documents from {bounds[0]} to {bounds[-1]}; they must go in order, 0 to"
        self._require(valid, f"{text} {len(self)}")
        end = int(self.pointers[-1]) + int(self.lengths[-1]) * itemsize
        text = f"{self.prefix}.bin has {self._size} bytes, and its index says {end}: cut short, or"
        require(0 < self._size == end, f"{text} of another corpus; write both files again")

    def _require(self, condition: object, message: str) -> None:
        require(
            condition,
            f"{self.prefix}.idx {message}: damaged, or not an index; write both files again",
        )


def _reopen(prefix: str, stamps: tuple[Stamp, Stamp]) -> Corpus:
    """Open an unpickled corpus, whose files must not have changed since it was pickled."""
    corpus = Corpus(prefix)
    require(corpus._stamps == stamps, f"{prefix} has changed since it was pickled: open it anew")
    return corpus
