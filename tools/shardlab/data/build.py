"""Samples for every rank: who builds the indices, who waits, and how all learn of a failure.

Without a cache each rank makes them for itself: they are a pure function of the corpus and the
recipe, so all have the same, and nobody waits. Megatron's `BlendedMegatronDatasetBuilder`
(megatron/core/datasets) has rank 0 build before a barrier: when it fails, the others stand there,
and where they don't share its disk, they raise and it stands.
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
from shardlab.data.blend import Blend, greedy, shares
from shardlab.data.corpus import Array, Corpus, DataError
from shardlab.data.samples import Indices, Recipe, Samples, indices

Part = tuple[float, float]
Make = Callable[[], Sequence[Array]]
SURPLUS = 0.005  # how many more samples a corpus of a blend has than its weight asks for


def parts(split: Iterable[float]) -> list[Part | None]:
    """Return what each weight of a split, such as (969, 30, 1), takes of a corpus; None: nothing.

    Raises:
        DataError: a weight is negative or no number, or all are 0.
    """
    given = list(split)
    bounds = itertools.accumulate(shares([*filter(None, given)]).tolist(), initial=0.0)
    found = itertools.pairwise(bounds)
    return [next(found) if weight else None for weight in given]


class Builder:
    """Builds samples; every rank makes one and calls it alike.

    Args:
        cache: a folder for indices; None: each rank makes its own, and no disk is needed.
        world: the ranks; None: this process alone. Nobody waits longer than its timeout.
        disk: of the world, the ranks that see this one's cache; all, unless given. On nodes that
            share no disk, give each node's own ranks: then each node's first builds.
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
        """Return the samples of a part of a corpus: of its sequences, as Megatron splits them.

        Raises:
            DataError: on every rank, where one found that it cannot be.
        """
        begin, end = (bound * len(corpus) for bound in part)
        if not 0 <= begin <= end < len(corpus) + 0.5:  # shares may add up to more by a last bit
            raise DataError(f"a part is {part}: give (begin, end), 0 to 1, in order")
        chosen = range(round(begin), round(end))
        made, remake = self._shared(
            partial(_checked, corpus, chosen, recipe), corpus.lengths, chosen, recipe
        )
        return Samples(corpus, Indices(*made), recipe, remake)

    def blend(
        self, corpora: Sequence[Corpus], recipe: Recipe, part: Part = (0.0, 1.0), *,
        weights: Sequence[float] | None = None,
    ) -> Blend:  # fmt: skip
        """Return samples of several corpora.

        Args:
            corpora: two or more.
            recipe: of each corpus's samples; with `weights` its `samples` are the blend's.
            part: of each corpus.
            weights: of the corpora; None: one epoch of each, in proportion, up to `samples`.

        Raises:
            DataError: on every rank: weights that are none, weights without a number of samples,
                or a corpus with fewer samples than asked of it.
        """
        if weights is None:
            made = [self.samples(corpus, replace(recipe, samples=None), part) for corpus in corpora]
            sizes = [len(samples) for samples in made]
            share, size = shares(sizes), min(recipe.samples or sum(sizes), sum(sizes))
        elif recipe.samples is None or len(weights) != len(corpora):
            given = f"{len(weights)} weights for {len(corpora)} corpora"
            raise DataError(f"{given}, {recipe.samples} samples: give a weight each, and a number")
        else:
            share = shares(weights)
            asked = [math.ceil(recipe.samples * weight) for weight in share.tolist()]
            more = [replace(recipe, samples=math.ceil(count * (1 + SURPLUS))) for count in asked]
            made = [self.samples(*each, part) for each in zip(corpora, more, strict=True)]
            share, size = shares(share.tolist()), sum(asked)  # twice, as there: the last bit tells
        (order, samples), remake = self._shared(partial(greedy, share, size), share, size)
        return Blend(made, order, samples, remake)

    def _shared(self, make: Make, array: Array, *about: object) -> tuple[Sequence[Array], Make]:
        """Return what is made, and what makes it again in a process that unpickles it.

        Args:
            make: makes it, where there is no cache or nothing in it.
            array, about: what it is made of, and is found by in the cache.
        """
        if self._cache is None:
            return make(), make
        path = self._cache.absolute() / cache.key(array, *about)
        with raise_on_all_ranks(self._ranks, self._device, "make the samples", DataError):
            if self._disk.rank == 0:
                cache.keep(path, make)
        with raise_on_all_ranks(self._ranks, self._device, "read the samples", DataError):
            return cache.load(path), partial(cache.load, path)


def _checked(corpus: Corpus, sequences: range, recipe: Recipe) -> Indices:
    """Return the indices of a corpus, whose own index is checked whole first."""
    corpus.check()
    return indices(corpus.lengths, sequences, recipe)
