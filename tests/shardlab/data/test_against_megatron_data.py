"""Files, indices, samples and blends against megatron-core's own: equal to the byte.

Which fault would show where, cheapest layer first: bytes of the pair, the three indices, a
sample's tokens, the order of a blend, what a builder makes of prefixes, weights and splits.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shardlab.data.blend import Blend, greedy_order, normalize_weights
from shardlab.data.build import Builder, parts
from shardlab.data.corpus import DTYPES, Corpus
from shardlab.data.encoding import FileTokenizer
from shardlab.data.samples import Recipe, Samples, build_indices
from shardlab.data.writer import Writer
from tests.shardlab.data.megatron_data import (
    BlendedMegatronDatasetBuilder,
    DType,
    GPTDataset,
    IndexedDataset,
    IndexedDatasetBuilder,
    Split,
    config,
    helpers,
    written,
)
from tests.shardlab.properties import steady

sequences = st.lists(st.integers(0, 9), min_size=1, max_size=12)
documents = st.lists(sequences, min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("ERROR"):  # that blends of one corpus are needless, and so on
        yield


@steady
@given(documents, st.sampled_from(DTYPES), st.booleans(), st.integers(0, 99))
def test_a_streamed_corpus_has_megatrons_bytes(
    corpus: list[list[int]], kind: Any, multimodal: bool, seed: int
) -> None:
    assume(any(map(sum, corpus)))
    dtype, draw = kind.newbyteorder("="), np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        megatron = IndexedDatasetBuilder(f"{folder}/theirs.bin", dtype.type, multimodal)
        with Writer(f"{folder}/ours", dtype) as ours:
            for lengths in corpus:
                tokens = draw.integers(0, 100, sum(lengths)).astype(dtype)
                modes = draw.integers(0, 3, len(lengths)).tolist() if multimodal else None
                megatron.add_document(torch.from_numpy(tokens), lengths, modes)
                if len(lengths) == 1:
                    ours.add(tokens)
                else:
                    ours.extend(tokens, lengths, [0, len(lengths)])
        megatron.finalize(f"{folder}/theirs.idx")
        bins, (index, expected) = (
            [Path(f"{folder}/{name}.{kind}").read_bytes() for name in ("ours", "theirs")]
            for kind in ("bin", "idx")
        )
        assert bins[0] == bins[1]
        assert index == expected[: len(index)]  # behind it are the modes, which only they write
        assert len(expected) - len(index) == multimodal * sum(map(len, corpus))
        streamed, read = Corpus(f"{folder}/theirs"), IndexedDataset(f"{folder}/theirs", multimodal)
        assert len(streamed) == len(read)
        for sequence in range(len(streamed)):
            item = read[sequence]
            tokens, mode = item if multimodal else (item, None)
            assert np.array_equal(streamed[sequence], tokens)
            assert streamed[sequence].dtype == tokens.dtype
            assert mode is None or streamed.modes[sequence] == mode
        assert np.array_equal(streamed.documents, read.document_indices)


@steady
@given(sequences, sequences)
def test_bulk_and_appended_corpora_have_the_bytes_of_streamed_ones(
    first: list[int], second: list[int]
) -> None:
    assume(sum(first) and sum(second))
    with TemporaryDirectory() as folder:
        root = Path(folder)
        megatron = IndexedDatasetBuilder(f"{root}/theirs.bin", dtype=np.uint16)
        for name, lengths in (("a", first), ("b", second)):
            megatron.add_index(str(written(root / name, lengths, np.uint16)))
        megatron.finalize(f"{root}/theirs.idx")
        with Writer(root / "appended", np.uint16) as appended:
            appended.append(Corpus(root / "a"))
            appended.append(Corpus(root / "b"))
        with Writer(root / "bulk", np.uint16) as bulk:
            tokens = np.concatenate([Corpus(root / name).tokens for name in "ab"])
            bulk.extend(tokens, first + second)
        for name, kind in itertools.product(("appended", "bulk"), ("bin", "idx")):
            actual = (root / f"{name}.{kind}").read_bytes()
            assert actual == (root / f"theirs.{kind}").read_bytes(), (name, kind)


def tokenizer_dtype(vocabulary: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> np.dtype[Any]:
    """Return the dtype for a tokenizer.json with this vocabulary; its package is optional."""
    tokenizer = SimpleNamespace(get_vocab=lambda: vocabulary)
    package = SimpleNamespace(Tokenizer=SimpleNamespace(from_file=lambda _: tokenizer))
    monkeypatch.setitem(sys.modules, "tokenizers", package)
    return FileTokenizer("tokenizer.json", None).dtype


@pytest.mark.parametrize("size", [65_499, 65_500, 65_536, 65_537])
def test_a_tokenizer_s_dtype_is_megatrons(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = {str(number): number for number in range(size)}
    assert tokenizer_dtype(vocabulary, monkeypatch) == DType.optimal_dtype(size)


def test_a_small_vocabulary_with_a_large_number_is_not_cut_to_uint16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = {"a": 0, "b": 1 << 16}
    assert DType.optimal_dtype(len(vocabulary)) == np.uint16
    assert tokenizer_dtype(vocabulary, monkeypatch) == np.int32


def megatron_and_ours(
    folder: str, lengths: list[int], recipe: Recipe, chosen: range
) -> tuple[Any, Samples]:
    prefix = written(Path(folder, "corpus"), lengths)
    settings = config(
        recipe.sequence, split="1", random_seed=recipe.seed, path_to_cache=f"{folder}/cache",
        drop_last_partial_validation_sequence=recipe.drop_last,
        add_extra_token_to_sequence=recipe.extra,
    )  # fmt: skip
    megatron = GPTDataset(
        IndexedDataset(str(prefix)), str(prefix),
        np.arange(chosen.start, chosen.stop, dtype=np.int32), recipe.samples, Split.valid, settings,
    )  # fmt: skip
    corpus = Corpus(prefix)
    return megatron, Samples(corpus, build_indices(corpus.lengths, chosen, recipe), recipe)


def demand_same(megatron: Any, ours: Samples) -> None:
    for name, array in ours.index._asdict().items():
        oracle = {"documents": "document", "places": "sample", "order": "shuffle"}[name]
        expected = getattr(megatron, f"{oracle}_index")
        assert np.array_equal(array, expected), name
        assert array.dtype == expected.dtype, name
    assert len(ours) == len(megatron)
    for sample in range(len(ours)):
        text, _ = megatron._query_document_sample_shuffle_indices(sample)
        assert np.array_equal(ours[sample], text)
        assert ours[sample].dtype == text.dtype


@steady
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=14),
    sequence=st.integers(1, 9),
    samples=st.none() | st.integers(1, 60),
    seed=st.integers(0, 2**31),
    extra=st.booleans(),
    drop_last=st.booleans(),
    cut=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
@example([10], 3, None, 0, True, True, (0, 0))  # a document that ends where its sample does
@example([5, 5, 5], 4, 9, 1, True, True, (0, 0))  # several epochs, the last apart
@example([5, 5, 5], 4, 4, 1, True, True, (0, 0))  # … and not apart
@example([1], 2, 9, 5, True, True, (0, 0))  # one token, again and again
@example([3, 0, 4], 3, None, 2, False, False, (0, 0))  # an empty document, a sample padded
def test_every_index_and_sample_is_megatrons(
    lengths: list[int], sequence: int, samples: int | None, seed: int, extra: bool,
    drop_last: bool, cut: tuple[int, int],
) -> None:  # fmt: skip
    chosen = range(cut[0], len(lengths) - cut[1])
    tokens = sum(lengths[place] for place in chosen)
    assume(len(chosen) > 0 and tokens >= (1 if samples else extra + sequence))
    recipe = Recipe(sequence=sequence, samples=samples, seed=seed, extra=extra, drop_last=drop_last)
    with TemporaryDirectory() as folder:
        try:
            megatron, ours = megatron_and_ours(folder, lengths, recipe, chosen)
        except AssertionError:  # theirs, where an empty document comes last and is to be padded
            assert not drop_last and extra and 0 in lengths
            return
        demand_same(megatron, ours)


def blended(weights: list[float], size: int) -> tuple[Any, Any]:
    corpora, samples = np.zeros(size, np.int16), np.zeros(size, np.int64)
    helpers.build_blending_indices(corpora, samples, weights, len(weights), size, False)
    return corpora, samples


def demand_blend(weights: list[float], size: int) -> None:
    share = normalize_weights(weights)
    for actual, expected in zip(
        greedy_order(share, size), blended(share.tolist(), size), strict=True
    ):
        assert np.array_equal(actual, expected)
        assert actual.dtype == expected.dtype


@steady
@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=9), st.integers(1, 3000))
@example([1.0, 1.0, 1.0, 1.0], 500)  # all tie, all the time
@example([0.1, 0.2, 0.3, 0.4], 500)  # … but for the last bits
@example([1.0, 1e-9, 1e-9], 2500)
def test_the_greedy_order_is_megatrons(weights: list[float], size: int) -> None:
    demand_blend(weights, size)


@pytest.mark.parametrize("weights", [[4, 3, 2, 1], [1] * 30, [0.97, 0.01, 0.0199, 1e-4, 3e-6]])
def test_the_greedy_order_is_megatrons_over_a_long_way(weights: list[float]) -> None:
    demand_blend(weights, 200_000)


@pytest.mark.parametrize("guess", ["nothing", "all in one corpus"])
def test_the_order_is_right_whatever_the_lanes_guess(
    guess: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(weights: Any, steps: Any) -> Any:
        counts = np.zeros((len(weights), len(steps)))
        counts[-1] = steps * (guess != "nothing")
        return counts

    monkeypatch.setattr("shardlab.data.blend._guess", bad)
    demand_blend([0.5, 0.3, 0.1999, 0.0001], 20_000)


@steady
@given(st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_an_exhaustive_blend_is_megatrons(sizes: list[int]) -> None:
    total = sum(sizes)
    corpora, samples = np.zeros(total, np.int16), np.zeros(total, np.int64)
    helpers.build_exhaustive_blending_indices(corpora, samples, sizes, len(sizes))
    actual = greedy_order(normalize_weights(sizes), total)
    assert np.array_equal(actual[0], corpora)
    assert np.array_equal(actual[1], samples)


@pytest.mark.parametrize("split", ["969,30,1", "99,1,0", "1,1,1", "0.3,0.2"])
def test_splits_are_megatrons(split: str) -> None:
    expected = config(4, split=split, blend=(["a"], None)).split_matrix
    actual = parts(map(float, split.split(",")))
    assert actual + [None] * (3 - len(actual)) == expected


@pytest.mark.parametrize("weights", [None, [0.7, 0.2, 0.1], [3.0, 1.0, 1.0]])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("samples", [(60, 12, None), (None, None, None)])
def test_what_the_builder_makes_is_megatrons(
    tmp_path: Path, weights: list[float] | None, cached: bool, samples: tuple[int | None, ...]
) -> None:
    if weights and None in samples:
        samples = (60, 12, 5)
    draw = np.random.default_rng(3)
    prefixes = [
        written(tmp_path / name, draw.integers(1, 40, 30).tolist(), seed=seed)
        for seed, name in enumerate("abc")
    ]
    settings = config(8, split="7,2,1", blend=([str(p) for p in prefixes], weights))
    megatron = BlendedMegatronDatasetBuilder(
        GPTDataset, list(samples), lambda: True, settings
    ).build()
    builder = Builder(tmp_path / "kept" if cached else None)
    corpora = [Corpus(prefix) for prefix in prefixes]
    for _ in range(2):  # built, and then found
        for oracle, part, count in zip(megatron, parts((7, 2, 1)), samples, strict=True):
            recipe = Recipe(sequence=8, samples=count)
            assert part
            ours = builder.blend(corpora, recipe, part, weights=weights)
            demand_blend_of(ours, oracle)


def demand_blend_of(ours: Blend, oracle: Any) -> None:
    assert len(ours) == len(oracle)
    assert np.array_equal(ours.corpora, oracle.dataset_index)
    assert np.array_equal(ours.samples, oracle.dataset_sample_index)
    for sample in range(len(ours)):
        expected = oracle[sample]
        assert np.array_equal(ours[sample][:-1], expected["tokens"])
        assert np.array_equal(ours[sample][1:], expected["labels"])
