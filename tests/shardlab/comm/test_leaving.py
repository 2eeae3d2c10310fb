"""A rank that left its world keeps none of torch's threads, whatever still holds an axis."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import LIMIT

RANK = """
import os, sys, torch
import torch.distributed as dist
from shardlab.comm import World
from shardlab.proofs.ledger import Ledger

for link in ("torch", "fast-gloo"):  # one import of torch for both
    store, rank = dist.FileStore(f"{sys.argv[1]}-{link}", 2), int(sys.argv[2])
    with World.join(store=store, rank=rank, size=2, backend="gloo", link=link) as world:
        axes = [world.axis("tensor", [0, 1]), world.axis("data", [0, 1])]
        weight = torch.nn.Parameter(torch.ones(4))
        for axis in axes:
            weight.grad = axis.all_reduce(torch.ones(4))
            with Ledger():
                axis.all_reduce(torch.ones(4))
        torch.optim.AdamW([weight]).step()
    tasks = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
    print(link, *sorted(name.strip() for name in tasks if "gloo" in name))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")
@pytest.mark.ci
def test_a_rank_that_left_has_no_thread_of_gloo(tmp_path: Path) -> None:
    """A thread that lets go of a tensor while Python ends would abort the process."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, tmp_path / "store", str(rank)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=LIMIT)[0].strip() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert outputs == ["torch\nfast-gloo"] * 2
