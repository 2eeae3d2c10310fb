"""Corpora, samples and blends beside megatron-core's, in one process, round by round.

`pytest -m benchmark -s tests/shardlab/benchmark/test_benchmark_data.py [--quick]`

What is measured is a process's CPU time, so that other load counts little; a ratio is the median of
those within rounds, Megatron's time over ours (above 1: ours is faster).
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from megatron.core.datasets.gpt_dataset import _build_document_index, _build_shuffle_index

from shardlab.data.blend import greedy, shares
from shardlab.data.build import Builder
from shardlab.data.corpus import Corpus
from shardlab.data.samples import Recipe, Samples, indices
from shardlab.data.writer import Writer
from tests.shardlab.data.megatron_data import (
    GPTDataset,
    IndexedDataset,
    IndexedDatasetBuilder,
    Split,
    config,
    helpers,
)

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

SEQUENCE, MEAN = 1024, 500  # tokens of a sample, and of a document on average
Act = Callable[[], object]


def ratio(theirs: Act, ours: Act, rounds: int = 7) -> float:
    """How many times ours is as fast, the median of rounds after one that warms up."""
    found = []
    for _ in range(rounds + 1):
        seconds = []
        for act in (theirs, ours):
            begun = time.process_time()
            act()
            seconds.append(time.process_time() - begun)
        found.append(seconds[0] / seconds[1])
    return statistics.median(found[1:])


def demand(found: dict[str, float], goals: dict[str, float], quick: bool) -> None:
    print("  ".join(f"{name} {value:.2f}×" for name, value in found.items()))
    # A tenth is what such a ratio moves by from run to run.
    missed = [f"{n} {found[n]:.2f}, not {g}" for n, g in goals.items() if found[n] < 0.9 * g]
    assert quick or not missed, "\n".join(missed)


@pytest.mark.parametrize("tokens", [10**6, 10**7, 10**8])
def test_corpora_and_samples_beside_megatrons(tmp_path: Path, quick: bool, tokens: int) -> None:
    if quick and tokens > 10**6:
        pytest.skip("a glance")
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 2 * MEAN, tokens // MEAN)
    text = draw.integers(0, 50_000, int(lengths.sum()))
    documents = np.split(text, np.cumsum(lengths)[:-1])
    tensors = [torch.from_numpy(document) for document in documents]

    def theirs() -> None:
        builder = IndexedDatasetBuilder(f"{tmp_path}/theirs.bin", dtype=np.uint16)
        for tensor in tensors:
            builder.add_item(tensor)
            builder.end_document()
        builder.finalize(f"{tmp_path}/theirs.idx")

    def streamed() -> None:
        with Writer(tmp_path / "ours", np.uint16) as writer:
            for document in documents:
                writer.add(document)

    def bulk() -> None:
        with Writer(tmp_path / "ours", np.uint16) as writer:
            writer.extend(text, lengths)

    found = {"streaming": ratio(theirs, streamed, 3), "bulk": ratio(theirs, bulk, 3)}
    corpus, recipe = Corpus(tmp_path / "ours"), Recipe(sequence=SEQUENCE)
    dataset = IndexedDataset(f"{tmp_path}/theirs")
    chosen = np.arange(len(lengths), dtype=np.int32)

    def build() -> Samples:
        made = indices(corpus.lengths, range(len(corpus)), recipe)
        return Samples(corpus, made, recipe)

    def build_theirs() -> None:
        state = np.random.RandomState(1234)
        order = _build_document_index(chosen, 1, state, False)
        epoch = int(np.sum(dataset.sequence_lengths[chosen]))
        whole = dataset.sequence_lengths.copy()
        begins = helpers.build_sample_idx(whole, order, SEQUENCE, 1, epoch, True, True)
        _build_shuffle_index(len(begins) - 1, len(begins) - 1, state)

    found["build"] = ratio(build_theirs, build)
    settings = config(SEQUENCE, split="1", path_to_cache=f"{tmp_path}/cache")
    reads = GPTDataset(dataset, f"{tmp_path}/theirs", chosen, None, Split.train, settings)
    folders = map(str, itertools.count())  # a new cache for each build

    def keep() -> None:
        Builder(tmp_path / "kept" / next(folders)).samples(corpus, recipe)

    def keep_theirs() -> None:
        other = config(SEQUENCE, split="1", path_to_cache=str(tmp_path / "kept" / next(folders)))
        GPTDataset(dataset, f"{tmp_path}/theirs", chosen, None, Split.train, other)

    found["build and keep"] = ratio(keep_theirs, keep, 30 if tokens < 10**8 else 7)
    mine = build()
    places = range(min(len(mine), 2000))
    found["query"] = ratio(
        lambda: [reads._query_document_sample_shuffle_indices(place) for place in places],
        lambda: [mine[place] for place in places],
    )
    found["item"] = ratio(
        lambda: [reads[place] for place in places], lambda: [mine[place] for place in places]
    )
    print(f"\n{tokens:,} tokens: ", end="")
    goals = {"streaming": 1.0, "bulk": 4.0, "build": 1 / 1.2}
    goals |= {"build and keep": 1 / 1.2, "query": 1.5, "item": 5.0}
    demand(found, goals, quick)


@pytest.mark.parametrize(
    "weights", [[4, 3, 2, 1], [1, 1, 1, 1], [0.9, 0.0999, 9e-5, 1e-5], [0.999998, 1e-6, 5e-7, 5e-7]]
)
def test_a_blend_of_a_million_samples_takes_at_most_one_and_a_half_seconds(
    quick: bool, weights: list[float]
) -> None:
    share, size = shares(weights), 10**5 if quick else 10**6
    corpora, samples = np.zeros(size, np.int16), np.zeros(size, np.int64)

    def theirs() -> None:
        helpers.build_blending_indices(corpora, samples, share.tolist(), 4, size, False)

    begun = time.process_time()
    found = greedy(share, size)
    seconds = time.process_time() - begun
    print(f"\n{weights}: {seconds:.3f} s; ", end="")
    demand({"blend": ratio(theirs, lambda: greedy(share, size))}, {}, quick)
    assert all(map(np.array_equal, found, (corpora, samples)))
    assert quick or seconds <= 1.5
