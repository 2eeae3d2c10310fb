"""What megatron-core 0.16.1 does wrong with data on disk, shown with it, and excluded in ours.

Each test shows the fault first, so that it says so when Megatron mends it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from shardlab.comm import World
from shardlab.data.blend import normalize_weights
from shardlab.data.build import Builder
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.samples import Recipe, build_indices
from shardlab.data.writer import Writer
from tests.docs.page import ROOT
from tests.running import run_program
from tests.shardlab.data.megatron_data import (
    BlendedDataset,
    BlendedMegatronDatasetBuilder,
    GPTDataset,
    IndexedDataset,
    IndexedDatasetBuilder,
    Split,
    config,
    helpers,
    written,
)

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


@pytest.mark.parametrize("bulk", [False, True])
def test_a_token_that_the_dtype_does_not_hold_is_refused(tmp_path: Path, bulk: bool) -> None:
    builder = IndexedDatasetBuilder(f"{tmp_path}/theirs.bin", dtype=np.uint16)
    builder.add_document(np.array([70_000]), [1])
    builder.finalize(f"{tmp_path}/theirs.idx")
    megatron = IndexedDataset(f"{tmp_path}/theirs")  # held: its tokens don't outlive it
    assert megatron[0] == 4464, MENDED
    with (
        pytest.raises(DataError, match="token 70000 is not among the uint16"),
        Writer(tmp_path / "ours", np.uint16) as ours,
    ):
        ours.extend([1, 70_000], [2]) if bulk else ours.add([1, 70_000])
    assert not list(tmp_path.glob("ours*"))


def test_a_rewritten_corpus_has_samples_of_its_own(tmp_path: Path) -> None:
    recipe, builder = Recipe(sequence=4), Builder(tmp_path / "kept")
    settings = config(4, split="1", path_to_cache=f"{tmp_path}/cache")

    def both(lengths: list[int]) -> tuple[int, int]:
        prefix = written(tmp_path / "corpus", lengths)
        megatron = GPTDataset(
            IndexedDataset(str(prefix)), str(prefix), np.arange(len(lengths), dtype=np.int32),
            None, Split.train, settings,
        )  # fmt: skip
        return len(megatron), len(builder.samples(Corpus(prefix), recipe))

    assert both([41, 40]) == (20, 20)
    assert both([400, 401]) == (20, 200), MENDED  # theirs knows the path alone


def test_a_bin_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    prefix = written(tmp_path / "a", [50, 50])
    content = Path(f"{prefix}.bin").read_bytes()
    Path(f"{prefix}.bin").write_bytes(content[:300])
    megatron = IndexedDataset(str(prefix))
    assert len(megatron) == 2, MENDED
    with pytest.raises(ValueError, match=r"larger than buffer|smaller than requested"):
        megatron[1]
    with pytest.raises(DataError, match=r"a\.bin has 300 bytes, and its index says 400"):
        Corpus(prefix)


@pytest.mark.parametrize("tokens", [2**24 + 2, pytest.param(2**25 + 3, marks=pytest.mark.ci)])
def test_the_number_of_samples_is_counted_in_integers(tokens: int) -> None:
    # ceil(float(tokens - extra) / sequence), in single precision: helpers.cpp, build_sample_idx
    lengths = np.array([tokens], np.int32)
    places = helpers.build_sample_idx(lengths, np.zeros(1, np.int32), 2, 1, tokens, False, True)
    ours = build_indices(lengths, range(1), Recipe(sequence=2, drop_last=False))
    exact = -(-(tokens - 1) // 2)
    assert len(places) - 1 != exact, MENDED
    assert len(ours.order) == exact


def test_a_blend_is_kept_without_a_process_group(tmp_path: Path) -> None:
    assert not dist.is_initialized()
    prefixes = [written(tmp_path / name, [60, 60]) for name in "ab"]
    settings = config(
        4, split="1", blend=([str(p) for p in prefixes], [0.5, 0.5]), path_to_cache=f"{tmp_path}/c"
    )
    megatron = BlendedMegatronDatasetBuilder(GPTDataset, [8, 0, 0], lambda: True, settings)
    with pytest.raises(ValueError, match="process group has not been initialized"):
        megatron.build()
    corpora = [Corpus(prefix) for prefix in prefixes]
    recipe = Recipe(sequence=4, samples=8)
    assert len(Builder(tmp_path / "k").blend(corpora, recipe, weights=[0.5, 0.5])) == 8


def build_on_separate_disks(world: World, folder: str) -> tuple[str, str]:
    """What each rank is told, where every rank has a cache that no other sees."""
    folder_of_rank = Path(folder, f"disk{world.rank}")
    folder_of_rank.mkdir()
    for path in Path(folder).glob("corpus.*"):
        shutil.copy(path, folder_of_rank)
    prefix = f"{folder_of_rank}/corpus"
    messages = []
    settings = config(4, split="1", path_to_cache=f"{folder_of_rank}/cache")
    try:
        GPTDataset(
            IndexedDataset(prefix),
            prefix,
            np.arange(2, dtype=np.int32),
            None,
            Split.train,
            settings,
        )
        messages.append("")
    except FileNotFoundError as error:
        messages.append(str(error))
    try:
        Builder(folder_of_rank / "kept", world=world).samples(Corpus(prefix), Recipe(sequence=4))
        messages.append("")
    except DataError as error:
        messages.append(str(error))
    each = Builder(folder_of_rank / "kept", world=world, disk=world.axis("own disk", [world.rank]))
    assert len(each.samples(Corpus(prefix), Recipe(sequence=4))) == 24
    return messages[0], messages[1]


def test_ranks_without_a_shared_disk_all_raise(pool: Any, tmp_path: Path) -> None:
    written(tmp_path / "corpus", [49, 50])
    (first, ours), (second, also_ours) = pool(2).run(build_on_separate_disks, str(tmp_path))
    assert first == "", MENDED  # rank 0 goes on, to wait in the next barrier
    assert "No such file" in second, MENDED  # while rank 1 raises
    assert ours == also_ours
    assert ours.startswith("rank 1 could not read the samples: ")
    assert ours.endswith("give a cache on a disk that all ranks share, or `disk`, those that do")


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
