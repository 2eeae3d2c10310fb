"""Theory 7's example and its blend are what shardlab makes, and what Megatron's own makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pages.runs.theory_07 import LENGTHS, RECIPE, build_example, example, token
from shardlab.data.build import Builder, parts
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.samples import Indices, Recipe
from shardlab.data.writer import Writer


def test_a_sample_reads_the_tokens_that_the_page_says(tmp_path: Path) -> None:
    with Writer(tmp_path / "corpus") as writer:
        for document, length in enumerate(LENGTHS):
            writer.add([100 * document + at for at in range(length)])
    samples = Builder().samples(Corpus(tmp_path / "corpus"), RECIPE)
    lines = example(build_example()).splitlines()[5:]
    for sample, line in enumerate(lines):
        read = [token(*divmod(int(number), 100)) for number in samples[sample]]
        assert f"  {' '.join(read)}" in line


def test_megatron_makes_the_same_example(tmp_path: Path) -> None:
    from tests.shardlab.data import megatron_data as megatron

    prefix = megatron.written(tmp_path / "corpus", list(LENGTHS))
    dataset = megatron.GPTDataset(
        megatron.IndexedDataset(str(prefix)), str(prefix), np.arange(4, dtype=np.int32),
        RECIPE.samples, megatron.Split.train,
        megatron.config(4, split="1", random_seed=RECIPE.seed),
    )  # fmt: skip
    indices = Indices(dataset.document_index, dataset.sample_index, dataset.shuffle_index)
    assert example(indices) == example(build_example())


def test_a_split_of_a_hundred_sequences_gives_the_last_part_none(tmp_path: Path) -> None:
    with Writer(tmp_path / "corpus") as writer:
        writer.extend(np.arange(200), [2] * 100)
    corpus, recipe = Corpus(tmp_path / "corpus"), Recipe(sequence=1)
    train, valid, test = (part for part in parts((969, 30, 1)) if part)
    documents = [Builder().samples(corpus, recipe, part).index.documents for part in (train, valid)]
    assert [sorted(each) for each in documents] == [[*range(97)], [97, 98, 99]]
    with pytest.raises(DataError, match="hold 0 tokens"):
        Builder().samples(corpus, recipe, test)
