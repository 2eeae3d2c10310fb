"""Writing a corpus: document by document or in bulk, and there only once it is whole.

Tokens go to a draft. At the end the old pair is taken away, its index first, and the new tokens are
put in their place, then the new index: whoever is killed leaves the old pair, no index, or the new
pair, never a mixed one. Who has the old corpus mapped goes on reading the old tokens. Nothing is
forced to the disk: a power cut may take a corpus of the last moments, and `Corpus` refuses what it
tears, a .bin that is short or an index that contradicts itself. Megatron's `IndexedDatasetBuilder`
truncates the old .bin under its readers, and lets a token wrap that its dtype doesn't hold.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from shardlab.data.corpus import DTYPES, HEAD, MAGIC, Array, Corpus, DataError, demand, told

CACHED = 1 << 16  # tokens that stay in a core's cache while they are checked, converted and written
OLDER = "choose another prefix; an older corpus there is as it was"


class Writer:
    """A corpus in the making; a context manager, at whose end the corpus is there.

    Args:
        prefix: of the two files; their folder must be there.
        dtype: of the tokens on disk. Megatron takes uint16 for a vocabulary of fewer than 65,500
            tokens, else int32.

    Raises:
        DataError: an unknown dtype, a token that it does not hold, lengths that don't add up, a
            disk that is full, another process that writes the same corpus.
    """

    def __init__(self, prefix: Path | str, dtype: DTypeLike = np.int32) -> None:
        self.prefix, self.dtype = str(prefix), np.dtype(dtype).newbyteorder("<")
        known = ", ".join(kind.name for kind in DTYPES)
        demand(self.dtype in DTYPES, f"no corpus has dtype {self.dtype.name}; choose from {known}")
        self._documents: list[Array] = []  # small ones wait, and are written many at a time
        self._waiting = self._size = 0  # tokens; bytes in the draft: what is behind was refused
        self._lengths: list[Array] = []
        self._counts = [np.zeros(1, "<i8")]  # sequences of each document, and of none before
        self._index, self._draft = (Path(f"{prefix}.{kind}.draft") for kind in ("idx", "bin"))
        named, mine = self._draft.name != ".bin.draft" and self._draft.parent.is_dir(), False
        demand(named, f"{self.prefix!r}: no such folder, or no name in it: make or add it")
        with told(f"cannot write {self.prefix}", OLDER):
            self._file = self._draft.open("ab", buffering=0)
            # A killed writer's draft is taken over; not that of one who lives and has locked it, or
            # has just put it in its place.
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = os.path.samestat(os.fstat(self._file.fileno()), self._draft.stat())
        demand(mine, f"another process is writing {self.prefix}: wait, or choose another")

    def add(self, tokens: ArrayLike) -> None:
        """Append one document, of one sequence.

        What is refused may be so only when a later one is added; then nothing is finished.
        """
        array = np.array(tokens).reshape(-1)  # a copy: the caller may fill the buffer again
        before = self._documents[-1] if self._documents else array
        # Of two dtypes, uint64 and int64 would meet in float64.
        if self._waiting >= CACHED or array.dtype != before.dtype or self._file.closed:
            self._settle()
        self._documents.append(array)
        self._waiting += array.size + 1

    def extend(
        self, tokens: ArrayLike, lengths: ArrayLike, documents: ArrayLike | None = None
    ) -> None:
        """Append many sequences at once, or none where it raises.

        Args:
            tokens: [tokens], those of all sequences end to end.
            lengths: [sequences].
            documents: [documents + 1], as in a corpus; by default each sequence is a document.
        """
        self._settle()
        self._put(tokens, lengths, documents)

    def append(self, corpus: Corpus) -> None:
        """Append a whole corpus; where its dtype is wider, tokens that this one's holds."""
        demand(corpus.modes is None, f"{corpus.prefix} has modes, and they can't be written here")
        self.extend(corpus.tokens, corpus.lengths, corpus.documents)

    def discard(self) -> None:
        """Give up: remove the drafts, and leave an older corpus as it is."""
        if not self._file.closed:  # the drafts are still ours: the lock goes with the file
            for draft in (self._index, self._draft):
                draft.unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> Writer:
        """Return the writer."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Put the pair in its place; or give up, if an exception ends it."""
        try:
            if kind is None and not self._file.closed:
                self._settle()
                demand(self._size, f"nothing was added to {self.prefix}")
                with told(f"cannot write {self.prefix}", OLDER):
                    self._finish()
        finally:
            self.discard()

    def _settle(self) -> None:
        """Write the documents that wait, as one; where that is refused, they wait on."""
        demand(not self._file.closed, f"the writer of {self.prefix} has ended: begin another")
        if self._documents:
            self._put(np.concatenate(self._documents), [*map(len, self._documents)], None)
            self._documents, self._waiting = [], 0

    def _put(self, tokens: ArrayLike, lengths: ArrayLike, documents: ArrayLike | None) -> None:
        """Write all, or none of it: who goes on without has a whole corpus."""
        array, sizes = np.asarray(tokens), self._exact("lengths", lengths, "<i4")
        bounds = np.arange(len(sizes) + 1) if documents is None else documents
        counts = np.diff(bounds := self._exact("documents", bounds, "<i8"))
        total, least = sizes.sum(), sizes.min(initial=0)
        said = f"lengths add up to {total} (least {least}); the tokens have shape {array.shape}"
        demand(array.shape == (total,) and least >= 0, f"{said}: give a flat row, and its lengths")
        right = [*bounds[:1], *bounds[-1:]] == [0, len(sizes)] and counts.min(initial=0) >= 0
        demand(right, f"documents must go in order from 0 to the {len(sizes)} sequences")
        with told(f"cannot write {self.prefix}", OLDER):
            self._file.truncate(self._size)
            for at in range(0, len(array), CACHED):
                content = self._exact("tokens", array[at : at + CACHED], self.dtype).data.cast("B")
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

    def _exact(self, what: str, values: ArrayLike, dtype: DTypeLike) -> Array:
        """Return [n] of a dtype that holds each value; floats alone are rounded, to floats."""
        row, kept = np.asarray(values), np.dtype(dtype)
        if row.ndim != 1 or (row.size and row.dtype.kind not in {"i", "u", kept.kind}):
            given = f"{what} are {row.dtype.name} {row.shape}; {self.prefix} holds {kept.name}"
            raise DataError(f"{given}: give a flat row of integers that fit")
        if row.size and row.dtype.kind != "f":
            # A float holds all integers up to here without a gap.
            most = 2 << np.finfo(kept).nmant if kept.kind == "f" else np.iinfo(kept).max
            least = -most if kept.kind == "f" else np.iinfo(kept).min
            # Seen as unsigned, what is negative is largest: one look at cold memory is enough.
            seen, native = row.view(row.dtype.str.replace("i", "u")), row.dtype.newbyteorder("=")
            ends = [row.min(), row.max()] if least else [seen.max().view(native)]
            if bad := [value for value in map(int, ends) if not least <= value <= most]:
                said = f"{what[:-1]} {bad[-1]} is not among the {kept.name}, {least} to {most}"
                raise DataError(f"{said}, that {self.prefix} holds: choose a wider dtype")
        return row.astype(kept)
