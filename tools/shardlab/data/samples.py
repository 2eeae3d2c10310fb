"""Samples of a fixed length, cut from the concatenation of documents in a shuffled order.

Three indices define them: the documents' order, the place where each sample begins, and the
samples' order. Values and dtypes equal those of Megatron's `GPTDataset`
(megatron/core/datasets/gpt_dataset.py). Its C++ visits the documents one by one
(`build_sample_idx` in helpers.cpp); here the places are computed by cumulative sums.

Dimensions: B samples, S tokens of a sample (one more if labels come from the same text).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from shardlab.data import cache
from shardlab.data.corpus import Array, Corpus, DataError, require

PAD = -1  # pads a last sample that is too short
SEPARATE_SHARE = 0.80  # a last epoch that uses less than this share is shuffled separately


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How samples are made from documents.

    Args:
        sequence: tokens of a sample.
        samples: the smallest number of samples, in as many epochs as needed; None for one epoch.
        seed: the seed of both shuffles.
        extra: whether each sample has one token more, its last label.
        drop_last: whether the last tokens, too few for a sample, are dropped; otherwise they make
            a padded sample.
    """

    sequence: int
    samples: int | None = None
    seed: int = 1234
    extra: bool = True
    drop_last: bool = True

    def __post_init__(self) -> None:
        """Refuse a sequence or a number of samples below 1."""
        valid = self.sequence >= 1 and (self.samples is None or self.samples >= 1)
        require(valid, f"sequence {self.sequence}, samples {self.samples}: choose 1 or more")


class Indices(NamedTuple):
    """documents [D], int32; places [N + 1, 2], int32: (place in documents, offset); order [N]."""

    documents: Array
    places: Array
    order: Array


def build_indices(lengths: Array, sequences: range, recipe: Recipe) -> Indices:
    """Return the indices of the samples of a corpus's `sequences`, given all its lengths.

    Raises:
        DataError: the sequences have too few tokens for one sample.
    """
    tokens = int(lengths[sequences.start : sequences.stop].sum(dtype=np.int64))
    size, extra, requested = recipe.sequence, int(recipe.extra), recipe.samples or 0
    # With a number of samples, one token is enough, as there are as many epochs as needed.
    needed = 1 if requested else extra + (size if recipe.drop_last else 1)
    text = f"{len(sequences)} sequences from {sequences.start} on hold {tokens} tokens; samples of"
    require(tokens >= needed, f"{text} {size} need {needed}: give more text, or shorter samples")
    epochs = max(1, -(-(requested * size + extra) // tokens))
    # The samples before the last epoch, and whether the last epoch is shuffled separately.
    before, per_epoch = ((epochs - 1) * tokens - extra) // size, (tokens - extra) // size
    separate = epochs > 1 and requested - before < int(SEPARATE_SHARE * per_epoch)
    state = np.random.RandomState(recipe.seed)
    epoch = np.arange(sequences.start, sequences.stop, dtype=np.int32)
    tiles = [epochs - 1, 1] if separate else [epochs]
    documents = np.concatenate([state.permutation(np.tile(epoch, count)) for count in tiles])
    places = _find_places(lengths[documents], recipe)
    total = len(places) - 1
    kind = np.uint32 if total < np.iinfo(np.uint32).max - 1 else np.int64
    halves = np.split(np.arange(total, dtype=kind), [before] if separate else [])
    return Indices(documents, places, np.concatenate([*map(state.permutation, halves)]))


def _find_places(lengths: Array, recipe: Recipe) -> Array:
    """Return each sample's begin: the document with the last token before it, and the offset."""
    size, extra = recipe.sequence, int(recipe.extra)
    ends = np.cumsum(lengths, dtype=np.int64)
    tokens = ends[-1] - extra
    # The number of samples that end within the first documents.
    done = np.maximum((ends - extra) // size, 0)
    if not recipe.drop_last:
        done[-1] = -(-tokens // size)
    documents = np.repeat(np.arange(len(ends)), np.diff(done, prepend=0))
    begins = np.minimum(np.arange(1, done[-1] + 1) * size, tokens)
    places = np.zeros((len(begins) + 1, 2), np.int32 if len(lengths) < 1 << 31 else np.int64)
    places[1:, 0], places[1:, 1] = documents, begins - ends[documents] + lengths[documents]
    return places


class SampleError(DataError, IndexError):
    """Raised for a sample number out of range; it ends a `for` loop."""


class Samples:
    """Samples of a corpus, each read from the corpus when it is indexed.

    Args:
        corpus: the corpus.
        index: the indices of its samples.
        recipe: the recipe of the indices.
        remake: a function that returns the indices in a process that unpickles the samples; without
            it, the pickle contains the indices.

    Attributes:
        sequence: tokens of a sample.
        extra: 1 if a sample has one token more, its last label; otherwise 0.

    Raises:
        DataError: the corpus has floats.
    """

    def __init__(
        self, corpus: Corpus, index: Indices, recipe: Recipe,
        remake: Callable[[], Sequence[Array]] | None = None,
    ) -> None:  # fmt: skip
        dtype = corpus.tokens.dtype
        require(dtype.kind != "f", f"{corpus.prefix} holds {dtype}; samples are of integers alone")
        self.corpus, self.index, self.extra = corpus, index, int(recipe.extra)
        self._recipe, self._remake = recipe, remake or partial(Indices, *index)
        self.sequence, self._signed = recipe.sequence, dtype.kind == "i"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle paths and the recipe; unpickling opens the corpus and reads or makes the index."""
        return _unpickle, (type(self), self.corpus, self._remake, self._recipe)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.index.order)

    def __getitem__(self, sample: int) -> Array:
        """Return a sample's tokens [S (+ 1)], int64; PAD follows the last token of the corpus.

        Raises:
            SampleError: the number is out of range.
            DataError: the corpus is damaged there, or has a negative token.
        """
        corpus, index, last = self.corpus, self.index, len(self) - 1
        if not 0 <= sample <= last:
            raise SampleError(f"sample {sample} of {corpus.prefix}: it has 0 to {last}, build more")
        place = index.order.item(sample)
        (first, offset), (last, end) = index.places[place : place + 2].tolist()
        # The row is written piece by piece; concatenating views of the corpus takes a fifth longer.
        row, position, tokens = np.empty(self.sequence + self.extra, np.int64), 0, corpus.tokens
        spans = [*map(corpus.span, index.documents[first : last + 1].tolist())]
        spans[-1] = spans[-1][0], end + self.extra
        for begin, count in spans:
            row[position : position + count - offset] = tokens[begin + offset : begin + count]
            position, offset = position + count - offset, 0
        if self._signed and row[:position].min() < 0:  # a token of -1 would pass for padding
            text = f"sample {sample} of {corpus.prefix} has token {row[:position].min()}"
            raise DataError(f"{text}: tokens are 0 or more; write the corpus anew")
        row[position:] = PAD
        return row

    def key(self, consumed: int) -> str:
        """Return a hash of the samples and their order; it doesn't depend on `consumed`."""
        return self._key

    @cached_property
    def content(self) -> str:
        """A hash of the corpus's lengths: the same for other samples of the same corpus."""
        return cache.hash_of(self.corpus.lengths)

    @property
    def corpora_text(self) -> str:
        """A description of the corpus, for an error: name, size and the hash of its lengths."""
        corpus = self.corpus
        return f"{corpus.prefix} ({len(corpus.tokens):,} tokens, lengths {self.content[:8]})"

    @cached_property
    def order_text(self) -> str:
        """A description of the order, for an error: number, part of the corpus, seed and hash."""
        first, last = self.index.documents.min(), self.index.documents.max()
        return (
            f"{len(self):,} samples of sequences {first} to {last} in the order of seed "
            f"{self._recipe.seed} ({self._key[:8]})"
        )

    @cached_property
    def _key(self) -> str:
        index = self.index
        return cache.hash_of(
            index.order, *map(cache.hash_of, (index.places, index.documents)), self.content
        )


def _unpickle(
    kind: type[Samples], corpus: Corpus, remake: Callable[[], Sequence[Array]], recipe: Recipe
) -> Samples:
    return kind(corpus, Indices(*remake()), recipe, remake)
