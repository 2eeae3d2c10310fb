"""Corpora and samples beside megatron-core's, in one process, round by round.

`--record` measures them again, in some minutes. What is measured is a process's CPU time, so that
other load counts little; a ratio is Megatron's time over ours within a round (above 1: ours is
faster).
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from costlab.record.options import Settings
from costlab.record.provenance import provenance
from pages.blocks import LANGUAGES, MEASURED, PageError, fill_blocks, in_language, read_words, table
from shardlab.data.build import Builder
from shardlab.data.corpus import Corpus
from shardlab.data.samples import Recipe, Samples, build_indices
from shardlab.data.writer import Writer

STORED = MEASURED / "corpora.json"
SEQUENCE, MEAN = 1024, 500  # tokens of a sample, and of a document on average
SIZES = (10**6, 10**7, 10**8)
GOALS = {
    "streaming": 1.0, "bulk": 4.0, "build": 1 / 1.2, "build and keep": 1 / 1.2, "query": 1.5,
    "item": 5.0,
}  # fmt: skip
Act = Callable[[], object]


def compute_ratios(reference: Act, ours: Act, rounds: int = 7) -> list[float]:
    """Return reference time / our time of each round; the first round warms up and is left out."""
    ratios = []
    for _ in range(rounds + 1):
        seconds = []
        for act in (reference, ours):
            begun = time.process_time()
            act()
            seconds.append(time.process_time() - begun)
        ratios.append(seconds[0] / seconds[1])
    return ratios[1:]


def measure(folder: Path, tokens: int) -> dict[str, list[float]]:
    """Return the ratios of each act's rounds, over a corpus of `tokens` tokens in `folder`."""
    from costlab.implementations.megatron import datasets as megatron

    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 2 * MEAN, tokens // MEAN)
    text = draw.integers(0, 50_000, int(lengths.sum()))
    documents = np.split(text, np.cumsum(lengths)[:-1])
    tensors = [torch.from_numpy(document) for document in documents]

    def stream_reference() -> None:
        builder = megatron.IndexedDatasetBuilder(f"{folder}/theirs.bin", dtype=np.uint16)
        for tensor in tensors:
            builder.add_item(tensor)
            builder.end_document()
        builder.finalize(f"{folder}/theirs.idx")

    def stream() -> None:
        with Writer(folder / "ours", np.uint16) as writer:
            for document in documents:
                writer.add(document)

    def write_at_once() -> None:
        with Writer(folder / "ours", np.uint16) as writer:
            writer.extend(text, lengths)

    ratios = {
        "streaming": compute_ratios(stream_reference, stream, 3),
        "bulk": compute_ratios(stream_reference, write_at_once, 3),
    }
    corpus, recipe = Corpus(folder / "ours"), Recipe(sequence=SEQUENCE)
    dataset = megatron.IndexedDataset(f"{folder}/theirs")
    chosen = np.arange(len(lengths), dtype=np.int32)

    def build() -> Samples:
        indices = build_indices(corpus.lengths, range(len(corpus)), recipe)
        return Samples(corpus, indices, recipe)

    def build_reference() -> None:
        state = np.random.RandomState(1234)
        order = megatron.gpt_dataset._build_document_index(chosen, 1, state, False)
        epoch = int(np.sum(dataset.sequence_lengths[chosen]))
        whole = dataset.sequence_lengths.copy()
        begins = megatron.helpers.build_sample_idx(whole, order, SEQUENCE, 1, epoch, True, True)
        megatron.gpt_dataset._build_shuffle_index(len(begins) - 1, len(begins) - 1, state)

    def open_reference(cache: object) -> Any:
        settings = megatron.config(SEQUENCE, split="1", path_to_cache=f"{folder}/{cache}")
        split = megatron.Split.train
        return megatron.GPTDataset(dataset, f"{folder}/theirs", chosen, None, split, settings)

    ratios["build"] = compute_ratios(build_reference, build)
    caches = itertools.count()  # a new cache for each build
    ratios["build and keep"] = compute_ratios(
        lambda: open_reference(next(caches)),
        lambda: Builder(folder / str(next(caches))).samples(corpus, recipe),
        30 if tokens < 10**8 else 7,
    )
    theirs, built = open_reference("cache"), build()
    places = range(min(len(built), 2000))

    def read() -> object:
        return [built[place] for place in places]

    ratios["query"] = compute_ratios(
        lambda: [theirs._query_document_sample_shuffle_indices(place) for place in places], read
    )
    ratios["item"] = compute_ratios(lambda: [theirs[place] for place in places], read)
    return ratios


def record() -> None:
    """Measure again; an act that is a tenth below its goal is an error after that."""
    cases: list[dict[str, Any]] = []
    for tokens in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            cases.append({"tokens": tokens, "ratios": measure(Path(folder), tokens)})
    about = provenance(Settings(), [], ranks=None) | {"command": "make benchmark"}
    result = {"schema": 1, "what": "corpora", "provenance": about, "cases": cases}
    STORED.write_text(json.dumps(result, separators=(",", ":")) + "\n", "utf-8")
    missed = [
        f"{act} {statistics.median(rounds):.2f} of {case['tokens']:,} tokens, not {GOALS[act]:.2f}"
        for case in cases
        for act, rounds in case["ratios"].items()
        if statistics.median(rounds) < 0.9 * GOALS[act]  # a tenth is what it moves by
    ]
    if missed:
        raise PageError(f"below the goal: {'; '.join(missed)}")


def format_table(result: Mapping[str, Any], words: Mapping[str, Any]) -> str:
    """Return the table and, under it, what it was measured on."""
    cases = result["cases"]
    head = [words["tokens"], *(f"10{'⁶⁷⁸'[SIZES.index(case['tokens'])]}" for case in cases)]
    rows = [[words[act], *(_format_rounds(case["ratios"][act]) for case in cases)] for act in GOALS]
    about = result["provenance"] | {"date": result["provenance"]["date"][:10]}
    return f"{table(head, '<' + '>' * len(cases), rows)}\n\n{words['about'].format(**about)}"


def _format_rounds(rounds: list[float]) -> str:
    return f"**{statistics.median(rounds):.2f}**, {min(rounds):.2f}–{max(rounds):.2f}"


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page of the data in each language."""
    result, words = json.loads(STORED.read_bytes()), read_words("corpora")
    for language in LANGUAGES:
        path = in_language("docs/reference/data", language)
        text = f"\n{format_table(result, words[language])}\n"
        yield path, fill_blocks(path, {"measured: corpora": text})
