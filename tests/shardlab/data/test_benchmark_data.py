"""Corpora, samples and blends beside megatron-core's, in one process, round by round.

`pytest -m benchmark -s tests/shardlab/data/test_benchmark_data.py [--quick]`

What is measured is a process's CPU time, so that other load counts little; a ratio is Megatron's
time over ours within a round (above 1: ours is faster). The table stands on the corpora's page.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from costlab.publish.kernels_page import MEASURED, fill
from costlab.record.options import ROOT, Settings
from costlab.record.provenance import provenance
from shardlab.data.blend import greedy_order, normalize_weights
from shardlab.data.build import Builder
from shardlab.data.corpus import Corpus
from shardlab.data.samples import Recipe, Samples, build_indices
from shardlab.data.writer import Writer
from tests.shardlab.data.megatron_data import (
    GPTDataset,
    IndexedDataset,
    IndexedDatasetBuilder,
    Split,
    config,
    gpt_dataset,
    helpers,
)

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

SEQUENCE, MEAN = 1024, 500  # tokens of a sample, and of a document on average
SIZES = (10**6, 10**7, 10**8)
Act = Callable[[], object]

PAGES = {"en": ROOT / "docs/reference/data.md", "es": ROOT / "docs/reference/data.es.md"}
TOKENS = {"en": "tokens of the corpus", "es": "tokens del corpus"}
ACTS = {
    "streaming": {"en": "write, document by document", "es": "escribir, documento a documento"},
    "bulk": {"en": "write, all at once", "es": "escribir, todo de una vez"},
    "build": {"en": "build the indices", "es": "construir los índices"},
    "build and keep": {"en": "build and cache the indices", "es": "construirlos y guardarlos"},
    "query": {"en": "read a sample's tokens", "es": "leer los tokens de una muestra"},
    "item": {"en": "read an item", "es": "leer un elemento"},
}
GOALS = {
    "streaming": 1.0, "bulk": 4.0, "build": 1 / 1.2, "build and keep": 1 / 1.2, "query": 1.5,
    "item": 5.0,
}  # fmt: skip
ABOUT = {
    "en": "CPU time of megatron-core in one process, divided by that of shardlab: the median of "
    "the rounds, least–most. Above 1, shardlab is faster. {date}; {processor}; megatron-core "
    "{megatron-core}; commit `{commit:.10}`.",
    "es": "Tiempo de CPU de megatron-core en un proceso, dividido entre el de shardlab: la mediana "
    "de las rondas, mínimo–máximo. Por encima de 1, shardlab es más rápido. {date}; {processor}; "
    "megatron-core {megatron-core}; commit `{commit:.10}`.",
}


def ratios(reference: Act, ours: Act, rounds: int = 7) -> list[float]:
    """Return reference time / our time of each round; the first round warms up and is left out."""
    ratios_by_round = []
    for _ in range(rounds + 1):
        seconds = []
        for act in (reference, ours):
            begun = time.process_time()
            act()
            seconds.append(time.process_time() - begun)
        ratios_by_round.append(seconds[0] / seconds[1])
    return ratios_by_round[1:]


def measure_ratios(tmp_path: Path, tokens: int) -> dict[str, list[float]]:
    """Return the ratios of each act's rounds, over a corpus of `tokens` tokens in `tmp_path`."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 2 * MEAN, tokens // MEAN)
    text = draw.integers(0, 50_000, int(lengths.sum()))
    documents = np.split(text, np.cumsum(lengths)[:-1])
    tensors = [torch.from_numpy(document) for document in documents]

    def stream_reference() -> None:
        builder = IndexedDatasetBuilder(f"{tmp_path}/theirs.bin", dtype=np.uint16)
        for tensor in tensors:
            builder.add_item(tensor)
            builder.end_document()
        builder.finalize(f"{tmp_path}/theirs.idx")

    def stream() -> None:
        with Writer(tmp_path / "ours", np.uint16) as writer:
            for document in documents:
                writer.add(document)

    def write_at_once() -> None:
        with Writer(tmp_path / "ours", np.uint16) as writer:
            writer.extend(text, lengths)

    ratios_by_act = {
        "streaming": ratios(stream_reference, stream, 3),
        "bulk": ratios(stream_reference, write_at_once, 3),
    }
    corpus, recipe = Corpus(tmp_path / "ours"), Recipe(sequence=SEQUENCE)
    dataset = IndexedDataset(f"{tmp_path}/theirs")
    chosen = np.arange(len(lengths), dtype=np.int32)

    def build() -> Samples:
        indices = build_indices(corpus.lengths, range(len(corpus)), recipe)
        return Samples(corpus, indices, recipe)

    def build_reference() -> None:
        state = np.random.RandomState(1234)
        order = gpt_dataset._build_document_index(chosen, 1, state, False)
        epoch = int(np.sum(dataset.sequence_lengths[chosen]))
        whole = dataset.sequence_lengths.copy()
        begins = helpers.build_sample_idx(whole, order, SEQUENCE, 1, epoch, True, True)
        gpt_dataset._build_shuffle_index(len(begins) - 1, len(begins) - 1, state)

    ratios_by_act["build"] = ratios(build_reference, build)
    settings = config(SEQUENCE, split="1", path_to_cache=f"{tmp_path}/cache")
    reads = GPTDataset(dataset, f"{tmp_path}/theirs", chosen, None, Split.train, settings)
    folders = map(str, itertools.count())  # a new cache for each build

    def keep() -> None:
        Builder(tmp_path / "kept" / next(folders)).samples(corpus, recipe)

    def keep_reference() -> None:
        cache = str(tmp_path / "kept" / next(folders))
        cached_settings = config(SEQUENCE, split="1", path_to_cache=cache)
        GPTDataset(dataset, f"{tmp_path}/theirs", chosen, None, Split.train, cached_settings)

    ratios_by_act["build and keep"] = ratios(keep_reference, keep, 30 if tokens < 10**8 else 7)
    built = build()
    places = range(min(len(built), 2000))
    ratios_by_act["query"] = ratios(
        lambda: [reads._query_document_sample_shuffle_indices(place) for place in places],
        lambda: [built[place] for place in places],
    )
    ratios_by_act["item"] = ratios(
        lambda: [reads[place] for place in places], lambda: [built[place] for place in places]
    )
    return ratios_by_act


def test_corpora_and_samples_beside_megatrons(tmp_path: Path, quick: bool) -> None:
    cases = []
    for tokens in SIZES[:1] if quick else SIZES:
        (tmp_path / str(tokens)).mkdir()
        cases.append({"tokens": tokens, "ratios": measure_ratios(tmp_path / str(tokens), tokens)})
        shutil.rmtree(tmp_path / str(tokens))
    about = provenance(Settings(), [], ranks=None) | {"command": "make benchmark"}
    result = {"schema": 1, "what": "corpora", "provenance": about, "cases": cases}
    print(f"\n{render(result, 'en')}")
    if quick:
        return
    text = json.dumps(result, separators=(",", ":")) + "\n"
    (MEASURED / "corpora.json").write_text(text, "utf-8")
    for language, page in PAGES.items():
        fill(page, "corpora", render(result, language))
    # A tenth is what such a ratio moves by from run to run.
    missed = [
        f"{act} {ratio:.2f} of {case['tokens']:,} tokens, not {GOALS[act]:.2f}"
        for case in cases
        for act, rounds in case["ratios"].items()
        if (ratio := statistics.median(rounds)) < 0.9 * GOALS[act]
    ]
    assert not missed, "\n".join(missed)


def render(result: Mapping[str, Any], language: str) -> str:
    """The table and, under it, what it was measured on."""
    cases = result["cases"]
    heads = [TOKENS[language], *(_power(case["tokens"]) for case in cases)]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|--:" * len(cases) + "|"]
    for act, words in ACTS.items():
        cells = [
            f"**{statistics.median(rounds):.2f}**, {min(rounds):.2f}–{max(rounds):.2f}"
            for rounds in (case["ratios"][act] for case in cases)
        ]
        lines.append(f"| {words[language]} | {' | '.join(cells)} |")
    about = result["provenance"] | {"date": result["provenance"]["date"][:10]}
    return "\n".join([*lines, "", ABOUT[language].format(**about)])


def _power(tokens: int) -> str:
    return "10" + str(len(str(tokens)) - 1).translate(str.maketrans("678", "⁶⁷⁸"))


@pytest.mark.parametrize(
    "weights", [[4, 3, 2, 1], [1, 1, 1, 1], [0.9, 0.0999, 9e-5, 1e-5], [0.999998, 1e-6, 5e-7, 5e-7]]
)
def test_a_blend_of_a_million_samples_takes_at_most_one_and_a_half_seconds(
    quick: bool, weights: list[float]
) -> None:
    share, size = normalize_weights(weights), 10**5 if quick else 10**6
    corpora, samples = np.zeros(size, np.int16), np.zeros(size, np.int64)

    def blend_reference() -> None:
        helpers.build_blending_indices(corpora, samples, share.tolist(), 4, size, False)

    begun = time.process_time()
    order = greedy_order(share, size)
    seconds = time.process_time() - begun
    print(f"\n{weights}: {seconds:.3f} s; ", end="")
    times = statistics.median(ratios(blend_reference, lambda: greedy_order(share, size)))
    print(f"{times:.2f} times as fast as Megatron's C++")
    assert all(map(np.array_equal, order, (corpora, samples)))
    assert quick or seconds <= 1.5
