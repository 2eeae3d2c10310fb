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
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from shardlab.data.corpus import DTYPES, HEAD, MAGIC, Array, Corpus, DataError

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
        self._file = self._draft()
        # Tokens, lengths and modes of small documents, written many at a time.
        self._documents: list[tuple[Array, Sequence[int], Sequence[int]]] = []
        self._waiting = 0
        self._written = 0
        self._sequences = 0
        self._lengths: list[Array] = []
        self._ends: list[Array] = [np.zeros(1, "<i8")]
        self._modes: list[Array] | None = [] if modes else None

    def add(
        self, tokens: ArrayLike, lengths: Sequence[int] | None = None,
        modes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Append one document: of one sequence, or of sequences of these lengths.

        What is refused may be so only when a later one is added; then nothing is finished.
        """
        array = np.array(tokens).reshape(-1)  # a copy: the caller may fill the buffer again
        sizes = [array.size] if lengths is None else lengths
        self._documents.append((array, sizes, [0] * len(sizes) if modes is None else modes))
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
        array, sizes = np.asarray(tokens), np.asarray(lengths, np.int64)
        bounds = np.arange(len(sizes) + 1) if documents is None else np.asarray(documents, np.int64)
        kinds = np.zeros(len(sizes), "i1") if modes is None else np.asarray(modes)
        if array.ndim != 1 or sizes.sum() != len(array) or ((sizes < 0) | (sizes >= 1 << 31)).any():
            raise DataError(
                f"lengths add up to {sizes.sum()} (least {sizes.min(initial=0)}); the tokens have "
                f"shape {array.shape}: give one flat array, and each sequence's length in it"
            )
        ends = [*bounds[:1], *bounds[-1:]]
        if ends != [0, len(sizes)] or (np.diff(bounds) < 0).any():
            raise DataError(f"documents must go in order from 0 to the {len(sizes)} sequences")
        small = kinds.astype("i1")
        kept = self._modes is not None or not kinds.any()
        if len(kinds) != len(sizes) or not (kept and np.array_equal(kinds, small)):
            raise DataError(
                f"{len(kinds)} modes for {len(sizes)} sequences: one int8 each, and "
                "Writer(modes=True)"
            )
        self._put(array)
        self._lengths.append(sizes.astype("<i4"))
        self._ends.append((bounds[1:] + self._sequences).astype("<i8"))
        self._sequences += len(sizes)
        if self._modes is not None:
            self._modes.append(small)

    def append(self, corpus: Corpus) -> None:
        """Append a whole corpus of the same dtype."""
        if corpus.tokens.dtype != self.dtype:
            raise DataError(
                f"{corpus.prefix} holds {corpus.tokens.dtype.name}, this corpus "
                f"{self.dtype.name}: write both in one dtype"
            )
        self.extend(corpus.tokens, corpus.lengths, corpus.documents, corpus.modes)

    def finish(self) -> None:
        """Write what is left, and put the pair in its place; nothing may be added after."""
        if self._file.closed and not self._documents:
            return
        try:
            self._settle()
            if self._written == 0:
                raise DataError(f"nothing was added to {self.prefix}: a corpus holds a token")
            self._commit()
        except OSError as error:
            raise self._failed(error) from error
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
        if not path.parent.is_dir():
            raise DataError(f"no folder {path.parent}: make it first")
        try:
            file = path.open("ab", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise BlockingIOError  # just put in its place, by the one that had locked it
            file.truncate(0)
        except (BlockingIOError, FileNotFoundError) as error:
            raise DataError(
                f"another process is writing {self.prefix}: wait for it, or choose another prefix"
            ) from error
        except OSError as error:
            raise self._failed(error) from error
        return file

    def _settle(self) -> None:
        """Write the documents that wait, as one."""
        if not self._documents:
            return
        documents, self._documents, self._waiting = self._documents, [], 0
        texts, sizes, modes = zip(*documents, strict=True)
        bounds = np.cumsum([0, *map(len, sizes)])
        tokens = [text for text in texts if len(text)] or [np.empty(0, self.dtype)]
        try:
            self.extend(np.concatenate(tokens), [*chain(*sizes)], bounds, [*chain(*modes)])
        except DataError:
            self._documents = documents  # refused again, rather than lost: most are good
            raise

    def _put(self, tokens: Array) -> None:
        """Write all, or none of it: who goes on without has a whole corpus."""
        begin = self._written
        try:
            for at in range(0, len(tokens), CACHED):
                self._write(tokens[at : at + CACHED])
        except DataError:
            self._file.truncate(begin)
            self._written = begin
            raise

    def _write(self, tokens: Array) -> None:
        if self.dtype.kind in "iu" and not np.can_cast(tokens.dtype, self.dtype):
            if tokens.dtype.kind not in "iu":
                raise DataError(f"tokens are {tokens.dtype.name}; {self.prefix} holds integers")
            holds = np.iinfo(self.dtype)
            for token in (int(tokens.min()), int(tokens.max())):
                if not holds.min <= token <= holds.max:
                    raise DataError(
                        f"token {token} is not among the {self.dtype.name} that {self.prefix} "
                        f"holds, {holds.min} to {holds.max}: choose a wider dtype, or the "
                        "tokenizer's right vocabulary"
                    )
        content = np.ascontiguousarray(tokens, self.dtype).data.cast("B")
        while content:
            try:
                count = self._file.write(content)
            except OSError as error:
                raise self._failed(error) from error
            content, self._written = content[count:], self._written + count

    def _commit(self) -> None:
        lengths, ends = np.concatenate(self._lengths), np.concatenate(self._ends)
        bytes_each = lengths.astype("<i8") * self.dtype.itemsize
        code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
        parts = [lengths, np.cumsum(bytes_each) - bytes_each, ends, *(self._modes or [])]
        with Path(f"{self.prefix}.idx.draft").open("wb") as index:
            index.write(HEAD.pack(MAGIC, 1, code, len(lengths), len(ends)))
            index.writelines(part.data for part in parts)
            index.flush()
            for file in (index, self._file):
                os.fsync(file.fileno())
        Path(f"{self.prefix}.idx").unlink(missing_ok=True)
        for kind in ("bin", "idx"):
            Path(f"{self.prefix}.{kind}.draft").replace(f"{self.prefix}.{kind}")
        self._file.close()

    def _failed(self, error: OSError) -> DataError:
        return DataError(
            f"cannot write {self.prefix}: {error.strerror or error}; an older corpus there is as "
            "it was: make room, and write anew"
        )
