"""Tests of the batch file on a Slurm of two nodes: how jobs end, and from where they go on.

Debian's own daemons, in namespaces that end with the fixture, whatever happens in there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from pages.blocks import ROOT
from pages.programs import TRAIN, script
from shardlab.comm import World
from tests.costlab.network.namespaces import inside
from tests.running import run_program
from tests.slurm.cluster import explain_lack
from tests.slurm.mortal import RUN

LIMIT = 800  # seconds for all jobs; on a quiet machine they take a twentieth
# CI runs as root and has the daemons: there a skip is a fault.
pytestmark = [pytest.mark.ci, pytest.mark.timeout(LIMIT + 60)]
if os.geteuid():
    pytestmark.append(pytest.mark.may_skip)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of each job."""
    if why := explain_lack():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("slurm")
    answer = run_program(inside([sys.executable, "-m", "tests.slurm.jobs", str(folder)]), cwd=ROOT)
    assert answer.returncode == 0, answer.stderr[-9000:]
    results: dict[str, Any] = json.loads(answer.stdout)
    return results


def train_without_cut() -> list[float]:
    """Return the losses of the same run on one rank, without an interruption."""
    lab = script(TRAIN)
    with World.join(store=dist.HashStore(), rank=0, size=1, backend="gloo") as world:
        losses: list[float] = lab.train(lab.Settings(**RUN), world)
    return losses


def test_a_killed_rank_is_named_and_ends_the_job_which_is_queued_again(
    results: dict[str, Any],
) -> None:
    output = results["killed"]["before"]
    assert "Signal 9 (SIGKILL)" in output
    assert "rank      : 3 (local_rank: 1)" in output
    assert "queued again, to go on from" in output


def test_a_job_that_is_begun_again_goes_on_to_the_losses_of_a_run_that_was_not_cut(
    results: dict[str, Any],
) -> None:
    killed = results["killed"]
    assert killed["job"]["JobState"] == "COMPLETED", killed["after"]
    assert killed["job"]["Restarts"] == "1"
    assert "step    5/8" in killed["after"]
    assert killed["losses"] == pytest.approx(train_without_cut()[4:], rel=1e-12)


def test_a_job_whose_time_is_nearly_over_is_queued_again_as_it_has_saved(
    results: dict[str, Any],
) -> None:
    late = results["late"]
    assert (late["job"]["JobState"], late["job"]["Restarts"]) == ("PENDING", "1")
    assert "queued again, to go on from" in late["log"]


def test_a_job_that_fails_before_it_saves_fails_for_good(results: dict[str, Any]) -> None:
    hopeless = results["hopeless"]
    assert (hopeless["job"]["JobState"], hopeless["job"]["Restarts"]) == ("FAILED", "0")
    assert "queued again" not in hopeless["log"]


def test_a_checkpoint_folder_that_the_nodes_do_not_share_fails_before_the_first_step(
    results: dict[str, Any],
) -> None:
    unshared = results["unshared"]
    assert (unshared["job"]["JobState"], unshared["job"]["Restarts"]) == ("FAILED", "0")
    assert "ranks 2, 3 do not find what rank 0 wrote to" in unshared["log"]
    assert "step    1/8" not in unshared["log"]


def test_a_job_says_that_it_begins_and_later_what_it_goes_on_from(results: dict[str, Any]) -> None:
    killed = results["killed"]
    assert "so training begins with step 1" in killed["before"]
    assert re.search(
        r"resume: goes on from the checkpoint in .*, after step 4 of 8", killed["after"]
    )


def test_no_daemon_outlives_the_jobs(results: dict[str, Any]) -> None:
    names = [process.read_text().strip() for process in Path("/proc").glob("[0-9]*/comm")]
    assert not {"slurmctld", "slurmd", "slurmstepd"} & set(names)
