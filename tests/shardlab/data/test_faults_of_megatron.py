"""What megatron-core does wrong with data on disk (the museum shows it) is excluded in ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shardlab.comm import World
from shardlab.data.blend import normalize_weights
from shardlab.data.build import Builder
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.samples import Recipe, build_indices
from tests.docs.page import ROOT
from tests.running import run_program
from tests.shardlab.data.megatron_data import BlendedDataset, Split, config, written
from tests.shardlab.pool import on_ranks

MENDED = "megatron-core has mended this: say so where it is told"

CLOSED = """
import sys
from shardlab.data.corpus import Corpus
corpus = Corpus(sys.argv[1])
tokens = corpus[0]
del corpus
print(tokens.sum())
"""


def test_tokens_outlive_their_corpus(tmp_path: Path) -> None:
    # Theirs end the process: the museum's room "closed-corpus".
    prefix = written(tmp_path / "a", [5000, 9])
    ours = run_program(
        [sys.executable, "-c", CLOSED, prefix],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
    )
    assert ours.stdout.strip() == str(Corpus(prefix)[0].sum()), ours.stderr


def test_a_rewritten_corpus_has_samples_of_its_own(tmp_path: Path) -> None:
    recipe, builder = Recipe(sequence=4), Builder(tmp_path / "kept")
    for lengths, samples in (([41, 40], 20), ([400, 401], 200)):
        prefix = written(tmp_path / "corpus", lengths)
        assert len(builder.samples(Corpus(prefix), recipe)) == samples


@pytest.mark.parametrize("tokens", [2**24 + 2, 2**25 + 3])
def test_the_number_of_samples_is_counted_in_integers(tokens: int) -> None:
    """Single precision has no 2²⁴ + 1, and would count a sample of one token less."""
    lengths = np.array([tokens], np.int32)
    indices = build_indices(lengths, range(1), Recipe(sequence=4096, drop_last=False))
    assert len(indices.order) == -(-(tokens - 1) // 4096) == tokens // 4096 + 1


def test_a_blend_is_kept_without_a_process_group(tmp_path: Path) -> None:
    corpora = [Corpus(written(tmp_path / name, [60, 60])) for name in "ab"]
    recipe = Recipe(sequence=4, samples=8)
    assert len(Builder(tmp_path / "k").blend(corpora, recipe, weights=[0.5, 0.5])) == 8


@on_ranks(2)
def test_ranks_without_a_shared_disk_all_raise(world: World, tmp_path: Path) -> None:
    folder = tmp_path / f"disk{world.rank}"
    folder.mkdir()
    prefix, recipe = written(folder / "corpus", [49, 50]), Recipe(sequence=4)
    words = "^rank 1 could not read the samples: .*give a cache on a disk that all ranks share, or"
    with pytest.raises(DataError, match=words):
        Builder(folder / "kept", world=world).samples(Corpus(prefix), recipe)
    each = Builder(folder / "kept", world=world, disk=world.axis("own disk", [world.rank]))
    assert len(each.samples(Corpus(prefix), recipe)) == 24


@pytest.mark.parametrize(
    "weights", [[0.5, 0.0], [0.5, -0.5], [1.0, float("nan")], [1.0, np.inf], [1e308] * 2]
)
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(DataError, match="must be a finite number above 0"):
        normalize_weights(weights)


def test_an_infinite_weight_goes_through_theirs_and_the_other_gives_all() -> None:
    class Part(SimpleNamespace):
        def __len__(self) -> int:
            return 10

    part = Part(index_split=Split.train, unique_identifiers="")
    settings = config(4, split="1", blend=(["a"], None))
    with np.errstate(all="ignore"):
        megatron = BlendedDataset([part, part], [1.0, np.inf], 4, settings)
    assert megatron.dataset_index.tolist() == [0] * 4, MENDED
