"""Lab 01: which checkpoint a run goes on from, and the folder that all its ranks must share."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages.programs import TRAIN, script
from shardlab.comm import World
from shardlab.data.writer import Writer
from tests.shardlab.pool import Pool

Pools = Callable[[int], Pool]
SMALL: dict[str, Any] = {
    "layers": 2, "hidden": 16, "heads": 8, "vocabulary": 70, "sequence": 8, "batch": 8,
    "microbatches": 1, "lr": 1e-2, "dtype": "float64", "dp": 2,
}  # fmt: skip


def attempt(world: World, folders: list[str], settings: dict[str, Any]) -> tuple[str, list[str]]:
    """Train; return what the rank printed, or why the run was refused, and its folder's files.

    Args:
        world: the ranks.
        folders: what the name of the checkpoint's folder leads to on each rank's node.
        settings: of the run.
    """
    lab, folder = script(TRAIN), folders[world.rank]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            lab.train(lab.Settings(**SMALL | settings, save=folder), world)
        except lab.Refused as error:
            return f"refused: {error}", sorted(path.name for path in Path(folder).iterdir())
    return printed.getvalue(), sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_ranks_do_not_share_is_refused_on_every_rank_before_the_first_step(
    pool: Pools, tmp_path: Path, resume: bool
) -> None:
    folders = [str(tmp_path / name) for name in ("first", "second")]
    for words, files in pool(2).run(attempt, folders, {"steps": 2, "resume": resume}):
        assert words.startswith("refused: rank 1 does not find what rank 0 wrote to "), words
        assert words.endswith("choose a folder that all nodes share; nothing is trained")
        assert files == []


def test_a_shared_folder_has_only_the_checkpoint_after_a_run(pool: Pools, tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    for words, (index, shards) in pool(2).run(attempt, [folder] * 2, {"steps": 1}):
        assert not words.startswith("refused")
        assert index == "index.json" and shards.startswith("shards-")


def test_resuming_says_in_one_line_what_it_goes_on_from_or_that_it_begins(
    pool: Pools, tmp_path: Path
) -> None:
    folder = str(tmp_path / "checkpoint")

    def line(settings: dict[str, Any]) -> str:
        (first, _), (second, _) = pool(2).run(attempt, [folder] * 2, settings)
        assert not second, "only the rank that reports says it"
        [message] = [x for x in first.splitlines() if x.startswith(("resume:", "load:"))]
        return message

    begins = f"resume: there is no checkpoint in {folder}, so training begins with step 1"
    goes_on = f"resume: goes on from the checkpoint in {folder}, after step 2 of"
    assert line({"steps": 2, "resume": True}) == begins
    assert line({"steps": 3, "resume": True}) == f"{goes_on} 3"
    assert line({"steps": 3, "resume": True}).endswith(
        "after step 3 of 3; all steps are trained already"
    )
    loaded = f"load: goes on from the checkpoint in {folder}, after its step 3"
    assert line({"steps": 1, "load": folder}) == loaded


# ---------------------------------------------------------------------- the same text goes on


def corpus(prefix: Path, tokens: int) -> str:
    with Writer(prefix, np.uint16) as writer:
        for begin in range(0, tokens, 50):
            writer.add(np.arange(begin, begin + 50) % 70)
    return str(prefix)


def test_a_run_goes_on_with_the_text_that_it_began_with_or_is_refused(
    pool: Pools, tmp_path: Path
) -> None:
    first, second = corpus(tmp_path / "first", 4000), corpus(tmp_path / "second", 4050)
    read = {"steps": 4, "resume": True, "data": first}
    refusals: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (read, {"sequence": 4}, r"sequence = 8 \(here 4\)"),
        (read, {"seed": 1}, r"16 samples .* of seed 0 \(.*, and .* of seed 1 \("),
        (read, {"evaluate": 9}, "16 samples .* sequences 0 to 79 .*, and .* sequences 0 to 75 "),
        (read, {"data": second}, r"/first \(4,000 tokens.*, and .*/second \(4,050 tokens"),
        (read, {"data": None}, "read the corpus .*/first, and .* the grammar of seed 0: "),
        (read | {"data": None}, {"data": first}, "the grammar of seed 0, and .* corpus .*/first: "),
        (read | {"data": None}, {"seed": 3}, "the grammar of seed 0, and .* grammar of seed 3: "),
    ]
    for number, (settings, change, why) in enumerate(refusals):
        folders = [str(tmp_path / f"checkpoint-{number}")] * 2
        pool(2).run(attempt, folders, settings | {"steps": 2})
        for words, _ in pool(2).run(attempt, folders, settings | change):
            assert words.startswith("refused: ") and re.search(why, words), (change, words)


def samples_read(world: World, settings: dict[str, Any], steps: list[int]) -> list[Any]:
    """What steps of a run read that goes on from a checkpoint, or that begins and leaves one."""
    lab = script(TRAIN)
    trainer = lab.Trainer(lab.Settings(**SMALL | settings), world)
    if settings["resume"]:
        trainer.load(settings["save"])
    rows = [row.tolist() for step in steps for row in trainer.text.share(step)[0]]
    if not settings["resume"]:
        trainer.save(settings["save"], steps[-1] + 1)
    return rows


def test_with_another_batch_size_a_run_goes_on_with_the_sample_after_the_last_one(
    pool: Pools, tmp_path: Path
) -> None:
    run = {"dp": 1, "data": corpus(tmp_path / "first", 4000), "save": str(tmp_path / "checkpoint")}
    [whole] = pool(1).run(
        samples_read, run | {"resume": False, "save": str(tmp_path / "whole")}, [*range(6)]
    )
    [begun] = pool(1).run(samples_read, run | {"resume": False}, [0, 1])
    [ended] = pool(1).run(samples_read, run | {"resume": True, "batch": 4}, [*range(2, 10)])
    assert begun + ended == whole
