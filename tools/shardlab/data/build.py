"""Builds samples on every rank: which rank builds the indices, and how all learn of a failure.

Without a cache each rank builds the indices itself. They are a pure function of the corpus and the
recipe, so all ranks have the same, and none waits. In Megatron's `BlendedMegatronDatasetBuilder`
(megatron/core/datasets), rank 0 builds before a barrier. If it fails, the other ranks hang in the
barrier; if they don't share its disk, they raise an error and rank 0 hangs.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from shardlab.comm import Axis, World
from shardlab.comm.collective_errors import raise_on_all_ranks
from shardlab.data import cache
from shardlab.data.blend import Blend, greedy_order, normalize_weights
from shardlab.data.corpus import Array, Corpus, DataError
from shardlab.data.samples import Indices, Recipe, Samples, build_indices

Part = tuple[float, float]
Make = Callable[[], Sequence[Array]]
SURPLUS = 0.005  # a corpus of a blend gets so many more samples than its weight requires


def parts(split: Iterable[float]) -> list[Part | None]:
    """Return each weight's part (begin, end) of a corpus, for a split such as (969, 30, 1).

    A weight of 0 gives None.

    Raises:
        DataError: a weight is negative or NaN, or all are 0.
    """
    weights = list(split)
    bounds = itertools.accumulate(normalize_weights([*filter(None, weights)]).tolist(), initial=0.0)
    intervals = itertools.pairwise(bounds)
    return [next(intervals) if weight else None for weight in weights]


class Builder:
    """Builds samples; every rank makes a builder and calls it in the same way.

    Args:
        cache: a folder for indices; None if each rank builds its own, without a disk.
        world: the ranks; None for this process alone. No rank waits longer than its timeout.
        disk: the ranks of the world that see this rank's cache; by default all. On nodes without a
            shared disk, give each node's ranks; then the first rank of each node builds.
    """

    def __init__(
        self, cache: Path | str | None = None, *, world: World | None = None,
        disk: Axis | None = None,
    ) -> None:  # fmt: skip
        self._cache = None if cache is None else Path(cache)
        self._device = world.device if world else torch.device("cpu")
        self._ranks = world.whole if world else Axis.alone("disk")
        self._disk = disk or self._ranks

    def samples(self, corpus: Corpus, recipe: Recipe, part: Part = (0.0, 1.0)) -> Samples:
        """Return the samples of a part of a corpus, whose sequences are split as in Megatron.

        Raises:
            DataError: on every rank, if one rank failed to build or read the samples.
        """
        begin, end = (bound * len(corpus) for bound in part)
        if not 0 <= begin <= end < len(corpus) + 0.5:  # shares may add up to more by a last bit
            raise DataError(f"a part is {part}: give (begin, end), 0 to 1, in order")
        chosen = range(round(begin), round(end))
        arrays, remake = self._build_or_load(
            partial(_check_and_build, corpus, chosen, recipe), corpus.lengths, chosen, recipe
        )
        return Samples(corpus, Indices(*arrays), recipe, remake)

    def blend(
        self, corpora: Sequence[Corpus], recipe: Recipe, part: Part = (0.0, 1.0), *,
        weights: Sequence[float] | None = None,
    ) -> Blend:  # fmt: skip
        """Return samples of several corpora.

        Args:
            corpora: two or more.
            recipe: the recipe of each corpus's samples; with `weights`, `recipe.samples` is the
                number of the blend's samples.
            part: the part of each corpus.
            weights: the corpora's weights; None for one epoch of each corpus, in proportion to
                their sizes, up to `recipe.samples`.

        Raises:
            DataError: on every rank: invalid weights, weights without a number of samples, or a
                corpus with fewer samples than the blend needs.
        """
        if weights is None:
            per_corpus = [
                self.samples(corpus, replace(recipe, samples=None), part) for corpus in corpora
            ]
            sizes = [len(samples) for samples in per_corpus]
            share, size = normalize_weights(sizes), min(recipe.samples or sum(sizes), sum(sizes))
        elif recipe.samples is None or len(weights) != len(corpora):
            counts_text = f"{len(weights)} weights for {len(corpora)} corpora"
            raise DataError(
                f"{counts_text}, {recipe.samples} samples: give a weight each, and a number"
            )
        else:
            share = normalize_weights(weights)
            counts = [math.ceil(recipe.samples * weight) for weight in share.tolist()]
            recipes = [
                replace(recipe, samples=math.ceil(count * (1 + SURPLUS))) for count in counts
            ]
            per_corpus = [self.samples(*each, part) for each in zip(corpora, recipes, strict=True)]
            share = normalize_weights(share.tolist())  # twice, as there: the last bit tells
            size = sum(counts)
        (order, samples), remake = self._build_or_load(
            partial(greedy_order, share, size), share, size
        )
        return Blend(per_corpus, order, samples, remake)

    def _build_or_load(
        self, make: Make, array: Array, *about: object
    ) -> tuple[Sequence[Array], Make]:
        """Return arrays, and a function that returns them in a process that unpickles the samples.

        Args:
            make: builds the arrays if they aren't in the cache.
            array, about: the inputs of `make`, whose hash is the key in the cache.
        """
        if self._cache is None:
            return make(), make
        path = self._cache.absolute() / cache.hash_of(array, *about)
        with raise_on_all_ranks(self._ranks, self._device, "make the samples", DataError):
            if self._disk.rank == 0:
                cache.store(path, make)
        with raise_on_all_ranks(self._ranks, self._device, "read the samples", DataError):
            return cache.load(path), partial(cache.load, path)


def _check_and_build(corpus: Corpus, sequences: range, recipe: Recipe) -> Indices:
    """Check the whole index of a corpus, then build the samples' indices."""
    corpus.check()
    return build_indices(corpus.lengths, sequences, recipe)
