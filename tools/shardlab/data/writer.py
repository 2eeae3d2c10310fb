"""Writes a corpus, document by document or in bulk; it replaces an older one only when complete.

Tokens are written to a draft. At the end the old pair of files is removed, its index first; then
the new tokens are renamed into place, then the new index. A process that is killed leaves the old
pair, no index or the new pair, never a mixture. A reader that has mapped the old corpus continues
to read the old tokens. No data is flushed to the disk explicitly: a power failure may destroy a
corpus written just before, and `Corpus` refuses a truncated .bin and an index that contradicts
itself. Megatron's `IndexedDatasetBuilder` truncates the old .bin under its readers, and tokens that
don't fit its dtype overflow without an error.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from shardlab.data.corpus import (
    DTYPES,
    HEAD,
    MAGIC,
    Array,
    Corpus,
    DataError,
    require,
    wrap_os_errors,
)

CACHED = 1 << 16  # tokens at a time, so that they stay in the cache until they are written
ADVICE = "choose another prefix; an older corpus there is as it was"


class Writer:
    """Writes a corpus; a context manager, at whose end the corpus exists.

    Args:
        prefix: the path of both files, without `.bin` and `.idx`; its folder must exist.
        dtype: the dtype of tokens on disk. Megatron's is uint16 for a vocabulary of fewer than
            65,500 tokens, otherwise int32.

    Raises:
        DataError: the dtype is unknown, a token doesn't fit into it, lengths don't add up, the disk
            is full, or another process writes the same corpus.
    """

    def __init__(self, prefix: Path | str, dtype: DTypeLike = np.int32) -> None:
        self.prefix, self.dtype = str(prefix), np.dtype(dtype).newbyteorder("<")
        names = ", ".join(kind.name for kind in DTYPES)
        require(self.dtype in DTYPES, f"no corpus has dtype {self.dtype.name}; choose from {names}")
        self._documents: list[Array] = []  # small documents, which are written many at a time
        self._waiting = self._size = 0  # buffered tokens; valid bytes of the draft
        self._lengths: list[Array] = []
        self._counts = [np.zeros(1, "<i8")]  # a 0, then the number of each document's sequences
        self._index, self._draft = (Path(f"{prefix}.{kind}.draft") for kind in ("idx", "bin"))
        valid, locked = self._draft.name != ".bin.draft" and self._draft.parent.is_dir(), False
        require(valid, f"{self.prefix!r}: no such folder, or no name in it: make or add it")
        with wrap_os_errors(f"cannot write {self.prefix}", ADVICE):
            self._file = self._draft.open("ab", buffering=0)
            # The draft of a killed writer is taken over, but not a draft that a living writer has
            # locked, or has just renamed into place.
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = os.path.samestat(os.fstat(self._file.fileno()), self._draft.stat())
        require(locked, f"another process is writing {self.prefix}: wait, or choose another")

    def add(self, tokens: ArrayLike) -> None:
        """Append one document, of one sequence.

        An invalid document may raise only when a later one is added. The corpus isn't written then.
        """
        array = np.array(tokens).reshape(-1)  # a copy: the caller may fill the buffer again
        before = self._documents[-1] if self._documents else array
        # Concatenating uint64 and int64 would make float64.
        if self._waiting >= CACHED or array.dtype != before.dtype or self._file.closed:
            self._flush()
        self._documents.append(array)
        self._waiting += array.size + 1

    def extend(
        self, tokens: ArrayLike, lengths: ArrayLike, documents: ArrayLike | None = None
    ) -> None:
        """Append many sequences at once, or none if it raises.

        Args:
            tokens: [tokens], all sequences concatenated.
            lengths: [sequences], tokens of each.
            documents: [documents + 1], as in a corpus; by default each sequence is a document.
        """
        self._flush()
        self._write(tokens, lengths, documents)

    def append(self, corpus: Corpus) -> None:
        """Append a whole corpus; its dtype may be wider if the tokens fit into this one's."""
        require(corpus.modes is None, f"{corpus.prefix} has modes, and they can't be written here")
        self.extend(corpus.tokens, corpus.lengths, corpus.documents)

    def discard(self) -> None:
        """Remove the drafts, and leave an older corpus unchanged."""
        if not self._file.closed:  # the lock, which makes the drafts ours, ends with the file
            for draft in (self._index, self._draft):
                draft.unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> Writer:
        """Return the writer."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Rename the pair into place, or discard it if an exception ended the block."""
        try:
            if kind is None and not self._file.closed:
                self._flush()
                require(self._size, f"nothing was added to {self.prefix}")
                with wrap_os_errors(f"cannot write {self.prefix}", ADVICE):
                    self._finish()
        finally:
            self.discard()

    def _flush(self) -> None:
        """Write the buffered documents; if that raises, they stay buffered."""
        require(not self._file.closed, f"the writer of {self.prefix} has ended: begin another")
        if self._documents:
            self._write(np.concatenate(self._documents), [*map(len, self._documents)], None)
            self._documents, self._waiting = [], 0

    def _write(self, tokens: ArrayLike, lengths: ArrayLike, documents: ArrayLike | None) -> None:
        """Write all of it or none, so that the corpus stays valid if the caller goes on."""
        array, sizes = np.asarray(tokens), self._convert("lengths", lengths, "<i4")
        bounds = np.arange(len(sizes) + 1) if documents is None else documents
        counts = np.diff(bounds := self._convert("documents", bounds, "<i8"))
        total, smallest = sizes.sum(), sizes.min(initial=0)
        text = f"lengths add up to {total} (least {smallest}); the tokens have shape {array.shape}"
        require(
            array.shape == (total,) and smallest >= 0, f"{text}: give a flat row, and its lengths"
        )
        valid = [*bounds[:1], *bounds[-1:]] == [0, len(sizes)] and counts.min(initial=0) >= 0
        require(valid, f"documents must go in order from 0 to the {len(sizes)} sequences")
        with wrap_os_errors(f"cannot write {self.prefix}", ADVICE):
            self._file.truncate(self._size)
            for begin in range(0, len(array), CACHED):
                content = self._convert(
                    "tokens", array[begin : begin + CACHED], self.dtype
                ).data.cast("B")
                while content:
                    content = content[self._file.write(content) :]
        self._size += len(array) * self.dtype.itemsize
        self._lengths.append(sizes)
        self._counts.append(counts)

    def _finish(self) -> None:
        lengths, counts = map(np.concatenate, (self._lengths, self._counts))
        sizes, code = lengths.astype("<i8") * self.dtype.itemsize, DTYPES.index(self.dtype) + 1
        rows = lengths, np.cumsum(sizes) - sizes, np.cumsum(counts)
        head = HEAD.pack(MAGIC, 1, code, len(lengths), len(counts))
        self._index.write_bytes(b"".join([head, *(row.data for row in rows)]))
        self._file.truncate(self._size)
        for kind in ("idx", "bin"):  # ext4 would wait for the disk before a file replaces another
            Path(f"{self.prefix}.{kind}").unlink(missing_ok=True)
        self._draft.replace(f"{self.prefix}.bin")
        self._index.replace(f"{self.prefix}.idx")
        self._file.close()

    def _convert(self, what: str, values: ArrayLike, dtype: DTypeLike) -> Array:
        """Return the values [n] in another dtype; only floats may be rounded, to floats.

        Raises:
            DataError: a value doesn't fit.
        """
        row, target = np.asarray(values), np.dtype(dtype)
        if row.ndim != 1 or (row.size and row.dtype.kind not in {"i", "u", target.kind}):
            text = f"{what} are {row.dtype.name} {row.shape}; {self.prefix} holds {target.name}"
            raise DataError(f"{text}: give a flat row of integers that fit")
        if row.size and row.dtype.kind != "f":
            # A float represents all integers up to here exactly.
            largest = 2 << np.finfo(target).nmant if target.kind == "f" else np.iinfo(target).max
            smallest = -largest if target.kind == "f" else np.iinfo(target).min
            # As unsigned numbers, negative values are the largest: one pass over memory is enough.
            unsigned = row.view(row.dtype.str.replace("i", "u"))
            native = row.dtype.newbyteorder("=")
            ends = [row.min(), row.max()] if smallest else [unsigned.max().view(native)]
            if bad := [value for value in map(int, ends) if not smallest <= value <= largest]:
                range_text = (
                    f"{what[:-1]} {bad[-1]} is not among the {target.name}, {smallest} to {largest}"
                )
                raise DataError(f"{range_text}, that {self.prefix} holds: choose a wider dtype")
        return row.astype(target)
