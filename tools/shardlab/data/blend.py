"""Blends: which corpus gives the next sample, so that at every point the weights are kept.

The order is greedy: a step takes from the corpus that lags most behind its share, the first of
those that lag alike (`build_blending_indices` in Megatron's helpers.cpp). Each step needs the last
one's result, and yet the order is found here for a thousand places at once, and exactly:

Greedy forgets where it began. Let two walks stand at the same step, with other counts. If both take
from one corpus, they differ as before. If one takes from a and the other from b, then, compared
with the other, it has taken less from a than from b so far (else both would have chosen alike): its
step brings the two differences closer, and the sum of all never grows. In practice it is 0 after a
few steps. So the order is cut into lanes that begin with guessed counts and are walked side by
side, one numpy operation a step for all; lanes that the lane before them ends otherwise than they
began are walked again, until there are none. A lane stands only if it began with the counts that
the one before it ended with, so the whole is the greedy order by induction, whatever was guessed,
and each round sets one more lane right, in practice nearly all; each step computes what the C++
does, in the same double precision.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from shardlab.data import cache
from shardlab.data.corpus import Array, demand
from shardlab.data.samples import SampleError, Samples

MOST = 32_766  # corpora of a blend: their number is an int16, and Megatron refuses more


def shares(weights: Sequence[float]) -> Array:
    """Return the weights, float64, divided by their sum.

    Raises:
        DataError: a weight is 0, negative, infinite or no number; or there are none, or too many.
    """
    given = np.array(weights, np.float64)
    demand(1 <= len(given) <= MOST, f"{len(given)} weights above 0: give 1 to {MOST}")
    right = (given > 0).all() and sum(given.tolist()) < math.inf
    demand(right, f"weights are {list(weights)}: each must be a finite number above 0")
    return np.asarray(given / given.sum())


def greedy(weights: Array, size: int) -> tuple[Array, Array]:
    """Return, for each of `size` steps, the corpus (int16) and which of its samples (int64).

    Args:
        weights: float64; their sum is 1. For `sizes / sizes.sum()` and as many steps as the sizes
            have in all, each corpus is used up exactly: a used-up one leads by what is left of its
            share, so that some other lags (`build_exhaustive_blending_indices`).
        size: steps.
    """
    length = max(1, int(size**0.5))
    begins = np.arange(0, size, length)
    starts, wrong = _guess(weights, begins), np.arange(len(begins))
    corpora, samples = (np.empty((length, len(begins)), kind) for kind in (np.int16, np.int64))
    ends = np.empty_like(starts)
    while len(wrong):
        counts, at, lanes = starts[:, wrong], begins[wrong], np.arange(len(wrong))
        for step in range(length):
            # The first two steps have the same shares, of one sample.
            lag = weights[:, None] * np.maximum(at + step, 1.0) - counts
            most: Array = lag.argmax(axis=0)
            corpora[step, wrong], samples[step, wrong] = most, counts[most, lanes]
            counts[most, lanes] += 1
        ends[:, wrong] = counts
        true = np.insert(ends[:, :-1], 0, 0.0, axis=1)
        starts, wrong = true, np.flatnonzero(np.any(true != starts, axis=0))
    return corpora.T.reshape(-1)[:size], samples.T.reshape(-1)[:size]


def _guess(weights: Array, steps: Array) -> Array:
    """Return counts [corpora, steps] that add up to each step, each within one of its share."""
    return np.diff(np.rint(np.multiply.outer(np.cumsum(weights), steps)), axis=0, prepend=0.0)


class Blend:
    """Samples of several corpora in one order.

    Args:
        parts: each corpus's samples.
        corpora, samples: for each sample of the blend, its part and its place there.
        remake: returns both again in a process that unpickles the blend; without it, the pickle
            holds them.

    Raises:
        DataError: a part has fewer samples than the blend asks of it.
    """

    def __init__(
        self, parts: Sequence[Samples], corpora: Array, samples: Array,
        remake: Callable[[], Sequence[Array]] | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.extra, self.sequence = parts, parts[0].extra, parts[0].sequence
        self.corpora, self.samples, self._remake = corpora, samples, remake
        for part, asked in zip(parts, np.bincount(corpora, minlength=len(parts)), strict=True):
            has = f"{part.corpus.prefix}, which has {len(part)}"
            demand(asked <= len(part), f"the blend asks {asked} samples of {has}: build more")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parts, and how the order is made."""
        if self._remake is None:
            return Blend, (self.parts, self.corpora, self.samples)
        return _unpickle, (self.parts, self._remake)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.corpora)

    @property
    def content(self) -> str:
        """A hash of the corpora's lengths."""
        return " ".join(part.content for part in self.parts)

    @property
    def corpora_text(self) -> str:
        """The corpora in words, for an error."""
        return _listed(part.corpora_text for part in self.parts)

    @cached_property
    def order_text(self) -> str:
        """The order in words, for an error: each corpus's share, then each one's own order."""
        shares = np.bincount(self.corpora, minlength=len(self.parts)) / max(1, len(self))
        return (
            f"{len(self):,} samples in shares of {_listed(f'{share:.4g}' for share in shares)}: "
            f"{_listed(part.order_text for part in self.parts)}"
        )

    def key(self, consumed: int) -> str:
        """Return a hash of what the first `consumed` samples are, and of the parts."""
        order = (rows[:consumed] for rows in (self.corpora, self.samples))
        return cache.key(np.concatenate([*order]), *(part.key(consumed) for part in self.parts))

    def __getitem__(self, sample: int) -> Array:
        """Return a sample's tokens [S (+ 1)], as its part has them."""
        if not 0 <= sample < len(self):
            raise SampleError(f"sample {sample} of a blend that has 0 to {len(self) - 1}")
        return self.parts[int(self.corpora[sample])][self.samples.item(sample)]


def _listed(texts: Iterable[str], most: int = 4) -> str:
    first = [*islice(texts, most + 1)]
    return ", ".join(first[:most]) + (", …" if len(first) > most else "")


def _unpickle(parts: Sequence[Samples], remake: Callable[[], Sequence[Array]]) -> Blend:
    corpora, samples = remake()
    return Blend(parts, corpora, samples, remake)
