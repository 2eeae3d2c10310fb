"""The jobs, run `inside` namespaces on a cluster of their own; prints what became of them as JSON.

python -m tests.slurm.jobs FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.slurm.cluster import Cluster, said
from tests.slurm.mortal import RUN

TORCHRUN = "tools/torchrun.sbatch"


def main() -> None:
    """Submit them all: jobs share both nodes."""
    folder = Path(sys.argv[1])
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cluster = Cluster(folder)
    waits = Waiting(cluster, folder / "waits")
    print(json.dumps({
        "killed": killed(cluster, folder / "killed"), "late": waits.late(),
        "hopeless": hopeless(cluster, folder / "hopeless"), "unshared": unshared(cluster),
    }))  # fmt: skip


def killed(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """A run one of whose ranks is killed, and which is begun again."""
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
    said("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    ended = cluster.until_over(job)
    said_after = cluster.log(job)[len(before) :]
    found = [float(line) for line in losses.read_text("utf-8").split()] if losses.exists() else []
    return {"job": ended, "before": before, "after": said_after, "losses": found}


class Waiting:
    """A job whose ranks do nothing, which has saved by the time that its own is nearly over."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        folder.mkdir()
        self._cluster, self._folder = cluster, folder
        wait = f'touch "{folder}/rank-$RANK"; exec sleep infinity'
        self._job = cluster.submit(
            TORCHRUN, "--no-python", "bash", "-c", wait, "train.py", CHECKPOINT=str(folder)
        )

    def late(self) -> dict[str, Any]:
        """Have Slurm say that the time is nearly over, as it does before the limit."""
        self._cluster.until(lambda: len(list(self._folder.glob("rank-*"))) == 4)
        (self._folder / "index.json").write_text("a first checkpoint", "utf-8")
        said("scancel", "--batch", "--signal=USR1", str(self._job))
        self._cluster.until_queued_again(self._job)
        return {"job": self._cluster.job(self._job), "log": self._cluster.log(self._job)}


def hopeless(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """A run that fails before it has saved anything new."""
    folder.mkdir()
    (folder / "index.json").write_text("an older checkpoint", "utf-8")
    job = cluster.submit(TORCHRUN, "--no-python", "false", CHECKPOINT=str(folder))
    return {"job": cluster.until_over(job), "log": cluster.log(job)}


def unshared(cluster: Cluster) -> dict[str, Any]:
    """A run whose checkpoint's folder is another one on each node."""
    options = [f"--{name}={value}" for name, value in RUN.items()]
    job = cluster.submit(
        TORCHRUN, "experiments/35-three-d/train.py", "--tp=2", "--pp=2", "--cpu", *options,
        CHECKPOINT=str(cluster.disk / "checkpoint"),
    )  # fmt: skip
    return {"job": cluster.until_over(job), "log": cluster.log(job)}


if __name__ == "__main__":
    main()
