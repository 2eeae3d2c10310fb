"""Lab 01: which checkpoint a run goes on from, and the folder that all its ranks must share."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardlab.comm import World
from tests.shardlab.labs.lab_pages import TRAIN, script
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
        [said] = [x for x in first.splitlines() if x.startswith(("resume:", "load:"))]
        return said

    begins = f"resume: there is no checkpoint in {folder}, so training begins with step 1"
    goes_on = f"resume: goes on from the checkpoint in {folder}, after step 2 of"
    assert line({"steps": 2, "resume": True}) == begins
    assert line({"steps": 3, "resume": True}) == f"{goes_on} 3"
    assert line({"steps": 3, "resume": True}).endswith(
        "after step 3 of 3; all steps are trained already"
    )
    loaded = f"load: goes on from the checkpoint in {folder}, after its step 3"
    assert line({"steps": 1, "load": folder}) == loaded
