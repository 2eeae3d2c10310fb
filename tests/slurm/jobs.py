"""Runs the jobs on a cluster of their own, `inside` namespaces; prints the results as JSON.

python -m tests.slurm.jobs FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.slurm.cluster import Cluster, run
from tests.slurm.mortal import RUN

TORCHRUN = "tools/torchrun.sbatch"


def main() -> None:
    """Submit all jobs; they share both nodes."""
    folder = Path(sys.argv[1])
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cluster = Cluster(folder)
    waits = Waiting(cluster, folder / "waits")
    print(json.dumps({
        "killed": run_killed_job(cluster, folder / "killed"), "late": waits.late(),
        "hopeless": run_hopeless_job(cluster, folder / "hopeless"),
        "unshared": run_unshared_job(cluster),
    }))  # fmt: skip


def run_killed_job(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """Run a job in which a rank is killed, and which starts again."""
    folder.mkdir()
    losses = folder / "losses"
    options = [f"--{name}={value}" for name, value in RUN.items()]
    job = cluster.submit(
        TORCHRUN, "-m", "tests.slurm.mortal", "--tp=2", "--pp=2", "--cpu", "--save-every=2",
        f"--losses={losses}", *options, CHECKPOINT=str(folder / "checkpoint"),
    )  # fmt: skip
    cluster.until_queued_again(job)
    before = cluster.log(job)
    # Slurm would wait two minutes. It takes credentials of the second of the requeue for old ones.
    run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    ended = cluster.until_over(job)
    output_after = cluster.log(job)[len(before) :]
    printed_losses = (
        [float(line) for line in losses.read_text("utf-8").split()] if losses.exists() else []
    )
    return {"job": ended, "before": before, "after": output_after, "losses": printed_losses}


class Waiting:
    """A job whose ranks do nothing, and which has saved before its time is over."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        folder.mkdir()
        self._cluster, self._folder = cluster, folder
        wait = f'touch "{folder}/rank-$RANK"; exec sleep infinity'
        self._job = cluster.submit(
            TORCHRUN, "--no-python", "bash", "-c", wait, "train.py", CHECKPOINT=str(folder)
        )

    def late(self) -> dict[str, Any]:
        """Make Slurm announce the end of the job's time, as it does before the limit."""
        self._cluster.until(lambda: len(list(self._folder.glob("rank-*"))) == 4)
        (self._folder / "index.json").write_text("a first checkpoint", "utf-8")
        run("scancel", "--batch", "--signal=USR1", str(self._job))
        self._cluster.until_queued_again(self._job)
        return {"job": self._cluster.job(self._job), "log": self._cluster.log(self._job)}


def run_hopeless_job(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """Run a job that fails before it has saved anything new."""
    folder.mkdir()
    (folder / "index.json").write_text("an older checkpoint", "utf-8")
    job = cluster.submit(TORCHRUN, "--no-python", "false", CHECKPOINT=str(folder))
    return {"job": cluster.until_over(job), "log": cluster.log(job)}


def run_unshared_job(cluster: Cluster) -> dict[str, Any]:
    """Run a job whose checkpoint folder is another folder on each node."""
    options = [f"--{name}={value}" for name, value in RUN.items()]
    job = cluster.submit(
        TORCHRUN, "experiments/35-three-d/train.py", "--tp=2", "--pp=2", "--cpu", *options,
        CHECKPOINT=str(cluster.disk / "checkpoint"),
    )  # fmt: skip
    return {"job": cluster.until_over(job), "log": cluster.log(job)}


if __name__ == "__main__":
    main()
