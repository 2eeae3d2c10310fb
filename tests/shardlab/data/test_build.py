"""One rank builds, all learn what came of it; what a kill leaves; what each rank then reads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardlab.comm import Axis, World
from shardlab.data import cache
from shardlab.data.build import Builder, parts
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.loader import Loader
from shardlab.data.samples import PAD, Recipe, Samples
from shardlab.data.writer import Writer
from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import IGNORED

RECIPE = Recipe(sequence=4, samples=30)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Documents of 5 tokens, 0 to 99."""
    with Writer(tmp_path / "corpus", np.uint16) as writer:
        writer.extend(range(100), [5] * 20)
    return Corpus(tmp_path / "corpus")


# ------------------------------------------------------------------ all ranks


def build_on_rank(world: World, prefix: str, folder: str) -> tuple[list[list[int]], list[str]]:
    samples = Builder(Path(folder, "kept"), world=world).samples(Corpus(prefix), RECIPE)
    assert samples.index.order.base is not None  # mapped from the cache
    cached = [path.name for path in Path(folder, "kept").iterdir()]
    return np.stack([*samples]).tolist(), cached


def test_all_ranks_have_the_samples_that_one_would_have(pool: Any, corpus: Corpus) -> None:
    alone = np.stack([*Builder().samples(corpus, RECIPE)]).tolist()
    folder = str(Path(corpus.prefix).parent)
    for samples, cached in pool(4).run(build_on_rank, corpus.prefix, folder):
        assert samples == alone
        assert len(cached) == 1


def fail_to_build(world: World, prefix: str, folder: str) -> list[str]:
    messages = []
    builder = Builder(Path(folder, "kept"), world=world)
    file = Path(folder, "a file")
    file.write_text("")
    for act in (
        lambda: builder.samples(Corpus(prefix), Recipe(sequence=400)),
        lambda: Builder(file / "kept", world=world).samples(Corpus(prefix), RECIPE),
        lambda: builder.samples(Corpus(prefix), Recipe(sequence=4, seed=-1)),
    ):
        with pytest.raises(DataError) as error:
            act()
        messages.append(str(error.value))
    return messages


def test_all_ranks_learn_why_the_builder_failed(pool: Any, corpus: Corpus) -> None:
    folder = str(Path(corpus.prefix).parent)
    short = "hold 100 tokens; samples of 400 need 401: give more text, or shorter samples"
    first, *rest = pool(4).run(fail_to_build, corpus.prefix, folder)
    assert first[0] == f"rank 0 could not make the samples: 20 sequences from 0 on {short}"
    assert first[1].startswith("rank 0 could not make the samples: cannot keep indices in")
    assert first[2].startswith("rank 0 could not make the samples: Seed must be between 0 and 2**3")
    assert rest == [first] * 3


def build_with_unequal_disks(world: World, prefix: str, folder: str) -> str:
    """Every rank has a disk of its own, and the second's refuses."""
    cached = Path(folder, "kept") if world.rank == 0 else Path(f"{prefix}.idx", "under a file")
    disk = world.axis("own disk", [world.rank])
    with pytest.raises(DataError) as error:
        Builder(cached, world=world, disk=disk).samples(Corpus(prefix), RECIPE)
    return str(error.value)


def test_all_ranks_learn_why_the_builder_of_another_disk_failed(pool: Any, corpus: Corpus) -> None:
    first, second = pool(2).run(
        build_with_unequal_disks, corpus.prefix, str(Path(corpus.prefix).parent)
    )
    assert first == second
    assert first.startswith("rank 1 could not make the samples: cannot keep indices in")


# ------------------------------------------------------------------ the cache


def test_indices_are_built_once(corpus: Corpus, tmp_path: Path) -> None:
    def again(*_: Any) -> Any:
        raise AssertionError("built anew")

    first = Builder(tmp_path / "kept").samples(corpus, RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardlab.data.build.build_indices", again)
        second = Builder(tmp_path / "kept").samples(corpus, RECIPE)
        with pytest.raises(DataError, match="AssertionError: built anew"):
            Builder(tmp_path / "kept").samples(corpus, Recipe(sequence=4, samples=30, seed=1))
    for first_array, second_array in zip(first.index, second.index, strict=True):
        assert np.array_equal(first_array, second_array)
        assert first_array.dtype == second_array.dtype


@pytest.mark.parametrize("size", [0, 1, 60, -8, None])
def test_a_cache_that_is_cut_or_of_unknown_types_is_refused(
    corpus: Corpus, tmp_path: Path, size: int | None
) -> None:
    Builder(tmp_path / "kept").samples(corpus, RECIPE)
    [file] = (tmp_path / "kept").iterdir()
    right = file.read_bytes()
    file.write_bytes(right.replace(b'"<i', b'"<x', 1) if size is None else right[:size])
    with pytest.raises(DataError, match="is damaged: remove it, and it is made anew"):
        Builder(tmp_path / "kept").samples(corpus, RECIPE)


@pytest.mark.parametrize("number", range(8))
def test_a_flipped_bit_in_any_place_of_a_cache_is_refused(
    corpus: Corpus, tmp_path: Path, number: int
) -> None:
    Builder(tmp_path / "kept").samples(corpus, RECIPE)
    [file] = (tmp_path / "kept").iterdir()
    right = file.read_bytes()
    for place in range(number, len(right), 8):
        wrong = bytearray(right)
        wrong[place] ^= 1 << number
        file.write_bytes(wrong)
        with pytest.raises(DataError, match="is damaged: remove it, and it is made anew"):
            Builder(tmp_path / "kept").samples(corpus, RECIPE)
    file.write_bytes(right)
    Builder(tmp_path / "kept").samples(corpus, RECIPE)


def _die(prefix: str, folder: str) -> None:
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    Builder(folder).samples(Corpus(prefix), RECIPE)


def test_indices_that_are_not_all_there_are_not_found(corpus: Corpus, tmp_path: Path) -> None:
    args = (corpus.prefix, str(tmp_path / "kept"))
    killed = multiprocessing.get_context("fork").Process(target=_die, args=args)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert len(list((tmp_path / "kept").glob("*draft*"))) == 1
    cached, uncached = (Builder(f).samples(corpus, RECIPE) for f in (tmp_path / "kept", None))
    assert np.array_equal([*cached], [*uncached])
    [file] = (tmp_path / "kept").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644, "others can read it"


def test_two_jobs_may_make_the_same_indices_at_once(tmp_path: Path) -> None:
    path, arrays = tmp_path / "kept", [np.arange(9), np.arange(4, dtype=np.int32)]
    replace = Path.replace

    def after_another(draft: Path, target: Path) -> None:
        patch.undo()
        cache.store(path, lambda: arrays)
        replace(draft, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", after_another)
        cache.store(path, lambda: arrays)
    assert all(map(np.array_equal, cache.load(path), arrays))
    assert [*tmp_path.iterdir()] == [path]


# ------------------------------------------------------------------ blends and splits


def test_a_blend_that_asks_for_more_than_there_is_is_refused(corpus: Corpus) -> None:
    builder, whole = Builder(), Recipe(sequence=4, samples=100)
    with pytest.raises(
        DataError, match="2 weights for 2 corpora, None samples: give a weight each, and a n"
    ):
        builder.blend([corpus, corpus], Recipe(sequence=4), weights=[1, 1])
    with pytest.raises(DataError, match="1 weights for 2 corpora"):
        builder.blend([corpus, corpus], whole, weights=[1])
    blend = builder.blend([corpus, corpus], whole, weights=[0.75, 0.25])
    assert np.bincount(blend.corpora).tolist() == [75, 25]
    with pytest.raises(DataError, match=r"the blend asks 75 samples of .*corpus, which has 24"):
        short = builder.samples(corpus, Recipe(sequence=4))
        type(blend)([short, short], blend.corpora, blend.samples)
    with pytest.raises(DataError, match="a blend that has 0 to 99"):
        blend[100]


@pytest.mark.parametrize("split", [(), (0, 0), (1, -1), (1, float("nan")), (1e308, 1e308)])
def test_a_split_that_is_none_is_refused(split: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match=r"0 weights above 0: give|must be a finite number above 0"):
        parts(split)


def test_fewer_samples_than_are_read_are_refused(corpus: Corpus) -> None:
    samples = Builder().samples(corpus, RECIPE)
    for sample in (-1, len(samples)):
        with pytest.raises(DataError, match=f"it has 0 to {len(samples) - 1}, build more"):
            samples[sample]
    with pytest.raises(DataError, match="choose 1 or more"):
        Recipe(sequence=4, samples=0)


def test_a_part_of_no_sequences_is_said_to_have_none(corpus: Corpus) -> None:
    with pytest.raises(DataError, match=r"^0 sequences from 0 on hold 0 tokens; samples of 4"):
        Builder().samples(corpus, RECIPE, (0.0, 0.0))


@pytest.mark.parametrize("part", [(-1.0, 1.0), (0.0, 2.0), (0.5, 0.2), (0.0, float("nan"))])
def test_a_part_that_is_none_is_refused(corpus: Corpus, part: tuple[float, float]) -> None:
    with pytest.raises(DataError, match=r"a part is .*: give .begin, end., 0 to 1, in order"):
        Builder().samples(corpus, RECIPE, part)


def test_a_corpus_of_floats_has_no_samples(tmp_path: Path) -> None:
    with Writer(tmp_path / "floats", np.float32) as writer:
        writer.extend(np.arange(100) + 0.5, [5] * 20)
    with pytest.raises(DataError, match="floats holds float32; samples are of integers"):
        Builder().samples(Corpus(tmp_path / "floats"), RECIPE)


def test_samples_and_blends_end_when_all_are_read(corpus: Corpus) -> None:
    samples = Builder().samples(corpus, RECIPE)
    blend = Builder().blend([corpus, corpus], RECIPE, weights=[1, 1])
    for read in (samples, blend):
        assert [row.shape for row in read] == [(5,)] * len(read)


def test_a_last_sample_that_is_kept_is_padded(corpus: Corpus) -> None:
    recipe = Recipe(sequence=16, drop_last=False)
    samples: Samples = Builder().samples(corpus, recipe)
    padded = [row for row in np.stack([*samples]).tolist() if PAD in row]
    assert [row.count(PAD) for row in padded] == [7 * 17 - 100 - 6]


# ------------------------------------------------------------------ batches


def place(size: int, rank: int) -> Axis:
    axis = Axis(None, "data", tuple(range(size)), "torch") if size == 1 else Axis.alone()
    axis.size, axis.rank = size, rank
    return axis


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_the_shares_of_data_ranks_make_up_the_batch(corpus: Corpus, ranks: int) -> None:
    samples = Builder().samples(corpus, RECIPE)
    loaders = [Loader(samples, 6, data=place(ranks, rank)) for rank in range(ranks)]
    for consumed in (13, 0, 6):  # nothing is kept between two batches
        shares = [loader.read(consumed) for loader in loaders]
        whole = torch.from_numpy(np.stack([*samples][consumed : consumed + 6]))
        assert torch.equal(torch.cat([tokens for tokens, _ in shares]), whole[:, :-1])
        assert torch.equal(torch.cat([labels for _, labels in shares]), whole[:, 1:])


class Watched(Samples):
    reads = 0

    def __getitem__(self, sample: int) -> Any:
        type(self).reads += 1
        return super().__getitem__(sample)


def read_on_stage(world: World, prefix: str) -> tuple[bool, bool, int]:
    grid = Grid(world=world, pipeline=4)
    built_samples = Builder(world=world).samples(Corpus(prefix), RECIPE)
    samples = Watched(built_samples.corpus, built_samples.index, RECIPE)
    Watched.reads = 0
    tokens, labels = Loader(samples, 2, data=grid.data, pipeline=grid.pipeline).read(0)
    return tokens is not None, labels is not None, Watched.reads


def test_each_stage_reads_what_it_looks_at(pool: Any, corpus: Corpus) -> None:
    reads = pool(4).run(read_on_stage, corpus.prefix)
    assert reads == [(True, False, 2), (False, False, 0), (False, False, 0), (False, True, 2)]


def test_a_batch_that_the_ranks_do_not_divide_or_that_is_not_there_is_refused(
    corpus: Corpus,
) -> None:
    samples = Builder().samples(corpus, RECIPE)
    with pytest.raises(DataError, match="a batch of 4 over 3 data ranks: choose a multiple"):
        Loader(samples, 4, data=place(3, 0))
    with pytest.raises(DataError, match=f"after {len(samples)} samples"):
        Loader(samples, 4).read(len(samples))


@pytest.mark.parametrize("batch", [1, 7])
def test_a_padded_sample_is_one_that_a_model_can_read(corpus: Corpus, batch: int) -> None:
    samples = Builder().samples(corpus, Recipe(sequence=16, drop_last=False))
    assert len(samples) == 7
    loader = Loader(samples, batch)
    read = [loader.read(consumed) for consumed in range(0, 7, batch)]
    tokens, labels = (
        torch.cat([batch for batch in side if batch is not None])
        for side in zip(*read, strict=True)
    )
    padded = torch.from_numpy(np.stack([*samples])) == PAD
    assert padded.any()
    assert (tokens[padded[:, :-1]] == 0).all()
    assert torch.equal(labels == IGNORED, padded[:, 1:])


def test_samples_without_a_last_label_are_refused(corpus: Corpus) -> None:
    samples = Builder().samples(corpus, Recipe(sequence=4, extra=False))
    both = Builder().blend([corpus, corpus], Recipe(sequence=4, extra=False))
    for source in (samples, both):
        with pytest.raises(
            DataError, match=r"without a last label: make them by Recipe.extra=True"
        ):
            Loader(source, 4)
