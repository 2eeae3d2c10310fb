"""What a spawned worker is given, and what a resumed run reads: the same samples, or a refusal."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from shardlab.data import cache
from shardlab.data.build import Builder
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.loader import Loader
from shardlab.data.samples import Recipe, Samples
from shardlab.data.writer import Writer

RECIPE = Recipe(sequence=8, samples=500, seed=1)


def write(prefix: Path, tokens: int = 40_000) -> Path:
    with Writer(prefix, np.uint16) as writer:
        for begin in range(0, tokens, 100):
            writer.add(np.arange(begin, begin + 100) % 1000)
    return prefix


def samples(prefix: Path, cache: Path, recipe: Recipe = RECIPE) -> Samples:
    return Builder(cache).samples(Corpus(prefix), recipe)


def test_pickles_hold_paths_and_open_the_same_samples(tmp_path: Path) -> None:
    built_samples = samples(write(tmp_path / "a"), tmp_path / "cache")
    content = pickle.dumps(built_samples)
    assert len(content) < 2000 < (tmp_path / "a.bin").stat().st_size
    again = pickle.loads(content)
    assert all((again[i] == built_samples[i]).all() for i in range(len(built_samples)))


def test_a_corpus_that_changed_since_it_was_pickled_is_refused(tmp_path: Path) -> None:
    content = pickle.dumps(Corpus(write(tmp_path / "a")))
    write(tmp_path / "a", tokens=50_000)
    with pytest.raises(DataError, match="has changed since it was pickled"):
        pickle.loads(content)


def test_another_job_may_rename_the_draft_before_any_time_that_it_is_opened(tmp_path: Path) -> None:
    original = tmp_path / "indices"
    draft, over = original.with_suffix(".draft"), Event()

    def rename(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and arguments[0] in (draft, str(draft)) and not over.is_set():
            with suppress(FileNotFoundError):
                draft.replace(original)

    sys.addaudithook(rename)  # for the rest of the process
    try:
        cache.store(original, lambda: [np.arange(4)])
    finally:
        over.set()
    assert cache.load(original)[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("recipe", "before", "after"),
    [
        (
            Recipe(sequence=16, samples=500, seed=1),
            "a sequence length of 8",
            "a sequence length of 16",
        ),
        (Recipe(sequence=8, samples=500, seed=2), "the order of seed 1 (", "the order of seed 2 ("),
        (Recipe(sequence=8, samples=9000, seed=1), "4,999 samples of", "9,999 samples of"),
    ],
)
def test_a_run_goes_on_with_the_samples_that_it_began_with(
    tmp_path: Path, recipe: Recipe, before: str, after: str
) -> None:
    prefix = write(tmp_path / "a")
    state = Loader(samples(prefix, tmp_path / "cache"), batch=4).state(consumed=100)
    assert Loader(samples(prefix, tmp_path / "cache"), batch=2).resume(state) == 100
    with pytest.raises(DataError) as refused:
        Loader(samples(prefix, tmp_path / "cache", recipe), batch=4).resume(state)
    read, following = str(refused.value).split(", and the next ones would be read with ")
    assert read.startswith("100 samples were read with ")
    assert before in read and after in following


def blend(folder: Path, weights: list[float], names: str = "ab") -> Loader:
    corpora = [Corpus(folder / name) for name in names]
    return Loader(Builder().blend(corpora, RECIPE, weights=weights), batch=4)


def test_a_blend_goes_on_with_the_weights_and_corpora_that_it_began_with(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        write(tmp_path / name, tokens=40_000 + 1000 * number)
    state = blend(tmp_path, [0.5, 0.5]).state(consumed=100)
    assert blend(tmp_path, [2.0, 2.0]).resume(state) == 100
    with pytest.raises(DataError, match=r"shares of 0\.5, 0\.5: .* shares of 0\.8, 0\.2: "):
        blend(tmp_path, [0.8, 0.2]).resume(state)
    with pytest.raises(DataError, match=r"/b \(41,000 .* next .*/c \(42,000 "):
        blend(tmp_path, [0.5, 0.5], "ac").resume(state)


def test_a_negative_token_is_no_padding(tmp_path: Path) -> None:
    with Writer(tmp_path / "a", np.int32) as writer:
        writer.add(np.array([1, 2, -1, 4] * 20))
    with pytest.raises(DataError, match="has token -1: tokens are 0 or more"):
        samples(tmp_path / "a", tmp_path / "cache", Recipe(sequence=8, samples=4))[0]
