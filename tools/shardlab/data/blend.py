"""Blends: the order in which samples are taken from several corpora, by their weights.

The order is greedy: each step takes a sample from the corpus that lags most behind its share, and
from the first of them if several lag equally (`build_blending_indices` in Megatron's helpers.cpp).
Each step depends on the previous one. Still, about a thousand steps are computed at once, exactly:

The greedy order forgets its start. Take two walks at the same step with different counts. If both
take from the same corpus, their counts differ as before. If walk 1 takes from a and walk 2 from b,
then walk 1 had taken relatively less from a than from b so far; otherwise both would have chosen
the same. The step therefore reduces both differences, and the sum of all differences never grows.
In practice it is 0 after a few steps. So the order is cut into lanes that start with guessed
counts. All lanes advance at the same time, by one numpy operation a step. A lane whose start
differs from the previous lane's end is walked again, until there is none. By induction the whole is
the greedy order, whatever was guessed. Each round corrects at least one more lane, in practice
nearly all. Each step computes what the C++ does, in the same double precision.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from shardlab.data import cache
from shardlab.data.corpus import Array, require
from shardlab.data.samples import SampleError, Samples

MAX_CORPORA = 32_766  # a corpus's number is an int16, and Megatron refuses more corpora


def normalize_weights(weights: Sequence[float]) -> Array:
    """Return the weights, float64, divided by their sum.

    Raises:
        DataError: a weight is 0, negative, infinite or NaN; or there are no weights, or too many.
    """
    values = np.array(weights, np.float64)
    require(
        1 <= len(values) <= MAX_CORPORA, f"{len(values)} weights above 0: give 1 to {MAX_CORPORA}"
    )
    valid = (values > 0).all() and sum(values.tolist()) < math.inf
    require(valid, f"weights are {list(weights)}: each must be a finite number above 0")
    return np.asarray(values / values.sum())


def greedy_order(weights: Array, size: int) -> tuple[Array, Array]:
    """Return, for each of `size` steps, the corpus (int16) and its sample's number (int64).

    Args:
        weights: float64; their sum is 1. For `sizes / sizes.sum()` and `sizes.sum()` steps, each
            corpus is used up exactly: a corpus without samples left is ahead of its share, so
            another corpus lags (`build_exhaustive_blending_indices`).
        size: the number of steps.
    """
    length = max(1, int(size**0.5))
    begins = np.arange(0, size, length)
    starts, unsettled = _guess(weights, begins), np.arange(len(begins))
    corpora, samples = (np.empty((length, len(begins)), kind) for kind in (np.int16, np.int64))
    ends = np.empty_like(starts)
    while len(unsettled):
        counts, positions = starts[:, unsettled], begins[unsettled]
        lanes = np.arange(len(unsettled))
        for step in range(length):
            # The first two steps have the same shares, of one sample.
            lag = weights[:, None] * np.maximum(positions + step, 1.0) - counts
            lagging: Array = lag.argmax(axis=0)
            corpora[step, unsettled], samples[step, unsettled] = lagging, counts[lagging, lanes]
            counts[lagging, lanes] += 1
        ends[:, unsettled] = counts
        correct = np.insert(ends[:, :-1], 0, 0.0, axis=1)
        starts, unsettled = correct, np.flatnonzero(np.any(correct != starts, axis=0))
    return corpora.T.reshape(-1)[:size], samples.T.reshape(-1)[:size]


def _guess(weights: Array, steps: Array) -> Array:
    """Return counts [corpora, steps] that add up to each step, each within one of its share."""
    return np.diff(np.rint(np.multiply.outer(np.cumsum(weights), steps)), axis=0, prepend=0.0)


class Blend:
    """Samples of several corpora in one order.

    Args:
        parts: each corpus's samples.
        corpora: for each sample of the blend, the number of its part.
        samples: for each sample of the blend, its number in that part.
        remake: a function that returns `corpora` and `samples` in a process that unpickles the
            blend; without it, the pickle contains them.

    Raises:
        DataError: a part has fewer samples than the blend takes from it.
    """

    def __init__(
        self, parts: Sequence[Samples], corpora: Array, samples: Array,
        remake: Callable[[], Sequence[Array]] | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.extra, self.sequence = parts, parts[0].extra, parts[0].sequence
        self.corpora, self.samples, self._remake = corpora, samples, remake
        for part, needed in zip(parts, np.bincount(corpora, minlength=len(parts)), strict=True):
            part_text = f"{part.corpus.prefix}, which has {len(part)}"
            require(
                needed <= len(part), f"the blend asks {needed} samples of {part_text}: build more"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parts, and the function that returns the order."""
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
        """A description of the corpora, for an error."""
        return _join_first(part.corpora_text for part in self.parts)

    @cached_property
    def order_text(self) -> str:
        """A description of the order, for an error: each corpus's share, and its samples' order."""
        shares = np.bincount(self.corpora, minlength=len(self.parts)) / max(1, len(self))
        shares_text = _join_first(f"{share:.4g}" for share in shares)
        orders = _join_first(part.order_text for part in self.parts)
        return f"{len(self):,} samples in shares of {shares_text}: {orders}"

    def key(self, consumed: int) -> str:
        """Return a hash of the first `consumed` samples' order and of the parts."""
        order = (rows[:consumed] for rows in (self.corpora, self.samples))
        return cache.hash_of(np.concatenate([*order]), *(part.key(consumed) for part in self.parts))

    def __getitem__(self, sample: int) -> Array:
        """Return a sample's tokens [S (+ 1)], from its part."""
        if not 0 <= sample < len(self):
            raise SampleError(f"sample {sample} of a blend that has 0 to {len(self) - 1}")
        return self.parts[int(self.corpora[sample])][self.samples.item(sample)]


def _join_first(texts: Iterable[str], limit: int = 4) -> str:
    first = [*islice(texts, limit + 1)]
    return ", ".join(first[:limit]) + (", …" if len(first) > limit else "")


def _unpickle(parts: Sequence[Samples], remake: Callable[[], Sequence[Array]]) -> Blend:
    corpora, samples = remake()
    return Blend(parts, corpora, samples, remake)
