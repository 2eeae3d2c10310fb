"""Writing a corpus: document by document or in bulk, and there only once it is whole.

Tokens go to drafts. `finish` takes an old index away, puts the new tokens in their place, then the
new index: whoever is killed leaves the old pair, no index, or the new pair, never a mixed one. Who
has the old corpus mapped goes on reading the old tokens. Megatron's `IndexedDatasetBuilder`
truncates the old .bin under its readers, and lets a token wrap that its dtype doesn't hold.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from shardlab.data.corpus import DTYPES, HEAD, MAGIC, Array, Corpus, DataError, told

CACHED = 1 << 16  # tokens that stay in a core's cache while they are checked, converted and written


class Writer:
    """A corpus in the making; leave it as a context manager, or call `finish`.

    Args:
        prefix: of the two files; their folder must be there.
        dtype: of the tokens on disk: uint16 for vocabularies up to 65,536, else int32.
        modes: whether sequences have modes (multimodal).

    Raises:
        DataError: an unknown dtype, a token that it does not hold, lengths that don't add up, a
            disk that is full, another process that writes the same corpus.
    """

    def __init__(
        self, prefix: Path | str, dtype: DTypeLike = np.int32, *, modes: bool = False
    ) -> None:
        self.prefix = str(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype not in DTYPES.values():
            known = ", ".join(kind.name for kind in DTYPES.values())
            raise DataError(f"a corpus has no dtype {self.dtype.name}; choose from {known}")
        advice = "an older corpus there is as it was: make room, or choose another prefix"
        self._told = partial(told, f"cannot write {self.prefix}", advice)
        self._file = self._draft()
        self._documents: list[Array] = []  # small ones wait, and are written many at a time
        self._waiting = 0
        self._sequences = 0
        self._index: list[tuple[Array, Array, Array]] = []  # lengths, ends of documents, modes
        self._modes = modes

    def add(
        self, tokens: ArrayLike, lengths: Sequence[int] | None = None,
        modes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Append one document: of one sequence, or of sequences of these lengths.

        What is refused may be so only when a later one is added; then nothing is finished.
        """
        array = np.array(tokens).reshape(-1)  # a copy: the caller may fill the buffer again
        if lengths is not None or modes is not None:
            sizes = [array.size] if lengths is None else lengths
            self.extend(array, sizes, [0, np.size(sizes)], modes)
            return
        if self._documents and array.dtype != self._documents[0].dtype:
            self._settle()  # uint64 and int64 would meet in float64
        self._documents.append(array)
        self._waiting += array.size + 1
        if self._waiting >= CACHED:
            self._settle()

    def extend(
        self, tokens: ArrayLike, lengths: ArrayLike, documents: ArrayLike | None = None,
        modes: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        """Append many sequences at once, or none where it raises.

        Args:
            tokens: [tokens], those of all sequences end to end.
            lengths: [sequences].
            documents: [documents + 1], as in a corpus; by default each sequence is a document.
            modes: [sequences]; zeros unless given.
        """
        if self._file.closed:
            raise DataError(f"the writer of {self.prefix} has ended: begin another")
        self._settle()
        array, sizes = np.asarray(tokens), _row("lengths", lengths, "<i4")
        ends = np.arange(len(sizes) + 1) if documents is None else documents
        bounds = _row("documents", ends, "<i8")
        kinds = _row("modes", np.zeros(len(sizes), "i1") if modes is None else modes, "i1")
        if array.ndim != 1 or sizes.sum() != len(array) or (sizes < 0).any():
            raise DataError(
                f"lengths add up to {sizes.sum()} (least {sizes.min(initial=0)}); the tokens have "
                f"shape {array.shape}: give one flat array, and each sequence's length in it"
            )
        if [*bounds[:1], *bounds[-1:]] != [0, len(sizes)] or (np.diff(bounds) < 0).any():
            raise DataError(f"documents must go in order from 0 to the {len(sizes)} sequences")
        if len(kinds) != len(sizes) or (kinds.any() and not self._modes):
            raise DataError(
                f"{len(kinds)} modes for {len(sizes)} sequences: one each, and Writer(modes=True)"
            )
        self._put(array)
        self._index.append((sizes, bounds[1:] + self._sequences, kinds))
        self._sequences += len(sizes)

    def append(self, corpus: Corpus) -> None:
        """Append a whole corpus; where its dtype is wider, tokens that this one's holds."""
        self.extend(corpus.tokens, corpus.lengths, corpus.documents, corpus.modes)

    def finish(self) -> None:
        """Write what is left, and put the pair in its place; nothing may be added after."""
        if self._file.closed and not self._documents:
            return
        try:
            self._settle()
            with self._told():
                self._commit()
        finally:
            self.discard()

    def discard(self) -> None:
        """Give up: remove the drafts, and leave an older corpus as it is."""
        self._documents = []
        if not self._file.closed:  # the drafts are still ours: the lock goes with the file
            for kind in ("idx", "bin"):
                Path(f"{self.prefix}.{kind}.draft").unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> Writer:
        """Return the writer."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Finish; or discard, if an exception ends it."""
        if kind is None:
            self.finish()
        self.discard()

    def _draft(self) -> IO[bytes]:
        """Open the tokens' draft, locked: a killed writer's is taken over, a living one's not."""
        path = Path(f"{self.prefix}.bin.draft")
        if path.name == ".bin.draft" or not path.parent.is_dir():
            raise DataError(f"{self.prefix!r}: no such folder, or no name in it: make or add it")
        with self._told():
            try:
                file = path.open("ab", buffering=0)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    raise BlockingIOError  # just put in its place, by the one that had locked it
                file.truncate(0)
            except (BlockingIOError, FileNotFoundError) as error:
                raise DataError(
                    f"another process is writing {self.prefix}: wait for it, or choose another "
                    "prefix"
                ) from error
        return file

    def _settle(self) -> None:
        """Write the documents that wait, as one; where that is refused, they wait on."""
        if documents := self._documents:
            self._documents = []
            try:
                self.extend(np.concatenate(documents), [*map(len, documents)])
            except DataError:
                self._documents = documents  # refused again, rather than lost: most are good
                raise
            self._waiting = 0

    def _put(self, tokens: Array) -> None:
        """Write all, or none of it: who goes on without has a whole corpus."""
        begin = self._file.seek(0, os.SEEK_END)
        try:
            for at in range(0, len(tokens), CACHED):
                part = tokens[at : at + CACHED]
                self._demand(part)
                content = np.ascontiguousarray(part, self.dtype).data.cast("B")
                with self._told():
                    while content:
                        content = content[self._file.write(content) :]
        except DataError:
            self._file.truncate(begin)
            raise

    def _demand(self, tokens: Array) -> None:
        """Refuse tokens that the dtype would change; floats alone may be rounded, to floats."""
        given, kept = tokens.dtype, self.dtype
        if given.kind == kept.kind == "f":
            return
        if given.kind not in "iu":
            raise DataError(f"tokens are {given.name}; {self.prefix} holds {kept.name}")
        (least, most), (lowest, highest) = _integers(kept), _integers(given)
        if lowest < least or highest > most:
            for token in (int(tokens.min()), int(tokens.max())):
                if not least <= token <= most:
                    raise DataError(
                        f"token {token} is not among the {kept.name} that {self.prefix} "
                        f"holds, {least} to {most}: choose a wider dtype, or the "
                        "tokenizer's right vocabulary"
                    )

    def _commit(self) -> None:
        if not self._file.seek(0, os.SEEK_END):
            raise DataError(f"nothing was added to {self.prefix}: a corpus holds a token")
        lengths, ends, modes = map(np.concatenate, zip(*self._index, strict=True))
        bytes_each = lengths.astype("<i8") * self.dtype.itemsize
        code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
        parts = [lengths, np.cumsum(bytes_each) - bytes_each, np.insert(ends, 0, 0)]
        with Path(f"{self.prefix}.idx.draft").open("wb") as index:
            index.write(HEAD.pack(MAGIC, 1, code, len(lengths), len(ends) + 1))
            index.writelines(part.data for part in [*parts, *([modes] if self._modes else [])])
            index.flush()
            for file in (index, self._file):
                os.fsync(file.fileno())
        Path(f"{self.prefix}.idx").unlink(missing_ok=True)
        for kind in ("bin", "idx"):
            Path(f"{self.prefix}.{kind}.draft").replace(f"{self.prefix}.{kind}")
        self._file.close()


def _row(name: str, values: ArrayLike, kind: str) -> Array:
    """Return [n] of a kind; refuse what would be cut, wrap or be laid flat."""
    array = np.asarray(values)
    right = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if not right or (array.astype(kind) != array).any():
        raise DataError(
            f"{name} are {array.dtype} {array.shape}: give a flat row of integers, one "
            f"{np.dtype(kind).name} each"
        )
    return array.astype(kind)


@cache
def _integers(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the most integer of those that a dtype holds without a gap."""
    if dtype.kind == "f":
        most = 1 << np.finfo(dtype).nmant + 1
        return -most, most
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
