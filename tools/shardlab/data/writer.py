"""Writing a corpus: document by document or in bulk, and there only once it is whole.

Tokens go to drafts. `finish` takes an old index away, puts the new tokens in their place, then the
new index: whoever is killed leaves the old pair, no index, or the new pair, never a mixed one. Who
has the old corpus mapped goes on reading the old tokens. Megatron's `IndexedDatasetBuilder`
truncates the old .bin under its readers, and lets a token wrap that its dtype doesn't hold.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from shardlab.data.corpus import DTYPES, HEAD, MAGIC, Array, Corpus, DataError, demand, told

Row: TypeAlias = ArrayLike | None  # [n], integers
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
        known = ", ".join(kind.name for kind in DTYPES)
        demand(self.dtype in DTYPES, f"no corpus has dtype {self.dtype.name}; choose from {known}")
        advice = "an older corpus there is as it was: make room, or choose another prefix"
        self._told = partial(told, f"cannot write {self.prefix}", advice)
        self._documents: list[Array] = []  # small ones wait, and are written many at a time
        self._waiting = self._sequences = 0
        self._index: list[tuple[Array, Array, Array]] = []  # lengths, ends of documents, modes
        self._modes = modes
        draft, mine = Path(f"{self.prefix}.bin.draft"), False
        if draft.name == ".bin.draft" or not draft.parent.is_dir():
            raise DataError(f"{self.prefix!r}: no such folder, or no name in it: make or add it")
        with self._told():
            self._file = draft.open("ab", buffering=0)
            # A killed writer's draft is taken over; not that of one who lives and has locked it, or
            # has just put it in its place.
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = os.path.samestat(os.fstat(self._file.fileno()), draft.stat())
            demand(mine, f"another process is writing {self.prefix}: wait, or choose another")
            self._file.truncate(0)

    def add(self, tokens: ArrayLike, lengths: Row = None, modes: Row = None) -> None:
        """Append one document: of one sequence, or of sequences of these lengths.

        What is refused may be so only when a later one is added; then nothing is finished.
        """
        array = np.array(tokens).reshape(-1)  # a copy: the caller may fill the buffer again
        if lengths is not None or modes is not None:
            sizes = [array.size] if lengths is None else lengths
            self.extend(array, sizes, [0, np.size(sizes)], modes)
            return
        before = self._documents[-1] if self._documents else array
        # Of two dtypes, uint64 and int64 would meet in float64.
        if self._waiting >= CACHED or array.dtype != before.dtype or self._file.closed:
            self._settle()
        self._documents.append(array)
        self._waiting += array.size + 1

    def extend(
        self, tokens: ArrayLike, lengths: ArrayLike, documents: Row = None, modes: Row = None
    ) -> None:
        """Append many sequences at once, or none where it raises.

        Args:
            tokens: [tokens], those of all sequences end to end.
            lengths: [sequences].
            documents: [documents + 1], as in a corpus; by default each sequence is a document.
            modes: [sequences]; zeros unless given.
        """
        self._settle()
        self._put(tokens, lengths, documents, modes)

    def append(self, corpus: Corpus) -> None:
        """Append a whole corpus; where its dtype is wider, tokens that this one's holds."""
        self.extend(corpus.tokens, corpus.lengths, corpus.documents, corpus.modes)

    def finish(self) -> None:
        """Write what is left, and put the pair in its place; nothing may be added after."""
        if self._file.closed:
            return
        try:
            self._settle()
            demand(self._file.seek(0, os.SEEK_END), f"nothing was added to {self.prefix}")
            lengths, ends, modes = map(np.concatenate, zip(*self._index, strict=True))
            sizes = lengths.astype("<i8") * self.dtype.itemsize
            parts = [lengths, np.cumsum(sizes) - sizes, np.insert(ends, 0, 0), modes]
            code = DTYPES.index(self.dtype) + 1
            with self._told(), Path(f"{self.prefix}.idx.draft").open("wb") as index:
                index.write(HEAD.pack(MAGIC, 1, code, len(lengths), len(ends) + 1))
                index.writelines(part.data for part in parts[: 3 + self._modes])
                index.flush()
                for file in (index, self._file):
                    os.fsync(file.fileno())
                Path(f"{self.prefix}.idx").unlink(missing_ok=True)
                for kind in ("bin", "idx"):
                    Path(f"{self.prefix}.{kind}.draft").replace(f"{self.prefix}.{kind}")
            self._file.close()
        finally:
            self.discard()

    def discard(self) -> None:
        """Give up: remove the drafts, and leave an older corpus as it is."""
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

    def _settle(self) -> None:
        """Write the documents that wait, as one; where that is refused, they wait on."""
        demand(not self._file.closed, f"the writer of {self.prefix} has ended: begin another")
        if self._documents:
            self._put(np.concatenate(self._documents), [*map(len, self._documents)], None, None)
            self._documents, self._waiting = [], 0

    def _put(self, tokens: ArrayLike, lengths: ArrayLike, documents: Row, modes: Row) -> None:
        """Write all, or none of it: who goes on without has a whole corpus."""
        array, sizes = np.asarray(tokens), _row("lengths", lengths, "<i4")
        count, total, least = len(sizes), sizes.sum(), sizes.min(initial=0)
        bounds = _row("documents", documents, "<i8", np.arange(count + 1))
        kinds = _row("modes", modes, "i1", np.zeros(count, np.int8))
        if array.ndim != 1 or total != len(array) or least < 0:
            raise DataError(
                f"lengths add up to {total} (least {least}); the tokens have shape {array.shape}: "
                "give one flat array, and each sequence's length in it"
            )
        if [*bounds[:1], *bounds[-1:]] != [0, count] or (np.diff(bounds) < 0).any():
            raise DataError(f"documents must go in order from 0 to the {count} sequences")
        if len(kinds) != count or (kinds.any() and not self._modes):
            raise DataError(f"{len(kinds)} modes for {count} sequences: 1 each, and modes=True")
        begin = self._file.seek(0, os.SEEK_END)
        try:
            for at in range(0, len(array), CACHED):
                part = array[at : at + CACHED]
                self._demand(part)
                content = np.ascontiguousarray(part, self.dtype).data.cast("B")
                with self._told():
                    while content:
                        content = content[self._file.write(content) :]
        except DataError:
            self._file.truncate(begin)
            raise
        self._index.append((sizes, bounds[1:] + self._sequences, kinds))
        self._sequences += count

    def _demand(self, tokens: Array) -> None:
        """Refuse tokens that the dtype would change; floats alone may be rounded, to floats."""
        given, kept = tokens.dtype, self.dtype
        if given.kind == kept.kind == "f":
            return
        if given.kind not in "iu":
            raise DataError(f"tokens are {given.name}; {self.prefix} holds {kept.name}")
        # A float holds all integers up to here without a gap.
        most = 1 << np.finfo(kept).nmant + 1 if kept.kind == "f" else np.iinfo(kept).max
        least = -most if kept.kind == "f" else np.iinfo(kept).min
        for token in (int(tokens.min()), int(tokens.max())):
            if not least <= token <= most:
                held = f"the {kept.name} that {self.prefix} holds, {least} to {most}"
                raise DataError(f"token {token} is not among {held}: choose a wider dtype")


def _row(name: str, values: Row, kind: str, default: ArrayLike = ()) -> Array:
    """Return [n] of a kind; refuse what would be cut, wrap or be laid flat."""
    array = np.asarray(default if values is None else values)
    right = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if not right or (array.astype(kind) != array).any():
        wanted = np.dtype(kind).name
        raise DataError(f"{name} are {array.dtype} {array.shape}: give a flat row of {wanted}")
    return array.astype(kind)
