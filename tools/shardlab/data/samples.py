"""The sample index: samples of a fixed length, cut from documents end to end in a shuffled order.

Three indices make them: the documents' order, the place where each sample begins, the samples'
order. All are equal to Megatron's `GPTDataset` (megatron/core/datasets/gpt_dataset.py), value and
dtype; its C++ walks over the documents one by one (`build_sample_idx` in helpers.cpp), and here
the places come from running sums.

Dimensions: B samples, S tokens of a sample (one more where labels are read off the same text).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from shardlab.data import cache
from shardlab.data.corpus import Array, Corpus, DataError, demand

PAD = -1  # fills up a last sample that is kept
SEPARATE = 0.80  # of an epoch: a last one of less is not shuffled with the others


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What samples are made of, apart from the documents.

    Args:
        sequence: tokens of a sample.
        samples: how many at least, in as many epochs as it takes; None: those of one epoch.
        seed: of both shuffles.
        extra: whether each sample has one token more, its last label.
        drop_last: whether tokens too few for a last sample are left, or padded.
    """

    sequence: int
    samples: int | None = None
    seed: int = 1234
    extra: bool = True
    drop_last: bool = True

    def __post_init__(self) -> None:
        """Refuse samples of no tokens, and a number that is none."""
        right = self.sequence >= 1 and (self.samples is None or self.samples >= 1)
        demand(right, f"sequence {self.sequence}, samples {self.samples}: choose 1 or more")


class Indices(NamedTuple):
    """documents [D], int32; places [N + 1, 2], int32: (place in documents, offset); order [N]."""

    documents: Array
    places: Array
    order: Array


def indices(lengths: Array, sequences: range, recipe: Recipe) -> Indices:
    """Return the indices of the samples of a corpus's `sequences`, given all its lengths.

    Raises:
        DataError: the sequences have too few tokens for one sample.
    """
    tokens = int(lengths[sequences.start : sequences.stop].sum(dtype=np.int64))
    size, extra, asked = recipe.sequence, int(recipe.extra), recipe.samples or 0
    # A number of samples is made in as many epochs as it takes.
    needed = 1 if asked else extra + (size if recipe.drop_last else 1)
    said = f"{len(sequences)} sequences from {sequences.start} on hold {tokens} tokens; samples of"
    demand(tokens >= needed, f"{said} {size} need {needed}: give more text, or shorter samples")
    epochs = max(1, -(-(asked * size + extra) // tokens))
    # How many samples come before the last epoch, and whether it is shuffled apart.
    before, whole = ((epochs - 1) * tokens - extra) // size, (tokens - extra) // size
    apart = epochs > 1 and asked - before < int(SEPARATE * whole)
    state = np.random.RandomState(recipe.seed)
    once = np.arange(sequences.start, sequences.stop, dtype=np.int32)
    tiles = [epochs - 1, 1] if apart else [epochs]
    documents = np.concatenate([state.permutation(np.tile(once, count)) for count in tiles])
    places = _places(lengths[documents], recipe)
    total = len(places) - 1
    kind = np.uint32 if total < np.iinfo(np.uint32).max - 1 else np.int64
    halves = np.split(np.arange(total, dtype=kind), [before] if apart else [])
    return Indices(documents, places, np.concatenate([*map(state.permutation, halves)]))


def _places(lengths: Array, recipe: Recipe) -> Array:
    """Return where each sample begins: the document that holds the last token read before it."""
    size, extra = recipe.sequence, int(recipe.extra)
    ends = np.cumsum(lengths, dtype=np.int64)
    tokens = ends[-1] - extra
    # How many samples have been read to their end within the first documents.
    done = np.maximum((ends - extra) // size, 0)
    if not recipe.drop_last:
        done[-1] = -(-tokens // size)
    documents = np.repeat(np.arange(len(ends)), np.diff(done, prepend=0))
    begins = np.minimum(np.arange(1, done[-1] + 1) * size, tokens)
    places = np.zeros((len(begins) + 1, 2), np.int32 if len(lengths) < 1 << 31 else np.int64)
    places[1:, 0], places[1:, 1] = documents, begins - ends[documents] + lengths[documents]
    return places


class SampleError(DataError, IndexError):
    """A sample that there isn't: `for` ends there."""


class Samples:
    """Samples of a corpus, each read when it is asked for.

    Args:
        corpus: where the tokens are.
        index: of the same.
        recipe: what they were made by.
        remake: returns the index again in a process that unpickles the samples. Unless it is given,
            the pickle holds the index.

    Attributes:
        sequence: tokens of a sample.
        extra: 1 where a sample has one token more, its last label; else 0.

    Raises:
        DataError: the corpus is of floats.
    """

    def __init__(
        self, corpus: Corpus, index: Indices, recipe: Recipe,
        remake: Callable[[], Sequence[Array]] | None = None,
    ) -> None:  # fmt: skip
        dtype = corpus.tokens.dtype
        demand(dtype.kind != "f", f"{corpus.prefix} holds {dtype}; samples are of integers alone")
        self.corpus, self.index, self.extra = corpus, index, int(recipe.extra)
        self._recipe, self._remake = recipe, remake or partial(Indices, *index)
        self.sequence, self._signed = recipe.sequence, dtype.kind == "i"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle paths and the recipe: the corpus is opened again, the index read or made again."""
        return _unpickle, (type(self), self.corpus, self._remake, self._recipe)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.index.order)

    def __getitem__(self, sample: int) -> Array:
        """Return a sample's tokens [S (+ 1)], int64, of all its documents, and PAD behind the last.

        Raises:
            SampleError: there are not so many samples.
            DataError: the corpus is damaged there, or has a negative token.
        """
        corpus, index, last = self.corpus, self.index, len(self) - 1
        if not 0 <= sample <= last:
            raise SampleError(f"sample {sample} of {corpus.prefix}: it has 0 to {last}, build more")
        place = index.order.item(sample)
        (first, offset), (last, end) = index.places[place : place + 2].tolist()
        # One row, written piece by piece: to join views of the corpus takes a fifth longer.
        row, at, tokens = np.empty(self.sequence + self.extra, np.int64), 0, corpus.tokens
        spans = [*map(corpus.span, index.documents[first : last + 1].tolist())]
        spans[-1] = spans[-1][0], end + self.extra
        for begin, count in spans:
            row[at : at + count - offset] = tokens[begin + offset : begin + count]
            at, offset = at + count - offset, 0
        if self._signed and row[:at].min() < 0:  # a token of -1 would pass for padding
            bad = f"sample {sample} of {corpus.prefix} has token {row[:at].min()}"
            raise DataError(f"{bad}: tokens are 0 or more; write the corpus anew")
        row[at:] = PAD
        return row

    def key(self, consumed: int) -> str:
        """Return a hash of what is read, and in which order; the same for any number `consumed`."""
        return self._key

    @cached_property
    def content(self) -> str:
        """A hash of the corpus's lengths: the same for other samples of the same corpus."""
        return cache.key(self.corpus.lengths)

    @property
    def corpora_text(self) -> str:
        """The corpus in words, for an error: its name, its size and the hash of its lengths."""
        corpus = self.corpus
        return f"{corpus.prefix} ({len(corpus.tokens):,} tokens, lengths {self.content[:8]})"

    @cached_property
    def order_text(self) -> str:
        """The order in words, for an error: number, part of the corpus, seed and its hash."""
        first, last = self.index.documents.min(), self.index.documents.max()
        return (
            f"{len(self):,} samples of sequences {first} to {last} in the order of seed "
            f"{self._recipe.seed} ({self._key[:8]})"
        )

    @cached_property
    def _key(self) -> str:
        index = self.index
        return cache.key(
            index.order, *map(cache.key, (index.places, index.documents)), self.content
        )


def _unpickle(
    kind: type[Samples], corpus: Corpus, remake: Callable[[], Sequence[Array]], recipe: Recipe
) -> Samples:
    return kind(corpus, Indices(*remake()), recipe, remake)
