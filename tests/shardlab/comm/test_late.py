"""A rank that never waits, as on GPUs none does, still learns who is missing: tried over gloo."""

import os
import signal
import subprocess
import sys
from pathlib import Path

RANK = """
import sys, time, torch
import torch.distributed as dist
from shardlab.comm import World
from shardlab.comm.late import Late

store, rank = dist.FileStore(sys.argv[1], 2), int(sys.argv[2])
world = World.join(store=store, rank=rank, size=2, backend="gloo", timeout=600)
world.late = Late(world.witness, patience=1.0)  # a world on NCCL has one of itself
axis = world.axis("tensor", [0, 1])
for _ in range(20):
    axis.all_reduce(torch.ones(4))
print("ready", flush=True)
sys.stdin.readline()
if rank == 0:
    pending = axis.start_all_reduce(torch.ones(4))
time.sleep(600)
"""


def test_a_collective_that_nobody_waits_for_names_the_rank_that_is_missing(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, tmp_path / "store", str(rank)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for rank in ranks:
            assert rank.stdout
            assert rank.stdout.readline() == "ready\n"
        os.kill(ranks[1].pid, signal.SIGSTOP)
        _, said = ranks[0].communicate("\n", timeout=240)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert ranks[0].returncode == 1
    assert "rank 0: all_reduce on the tensor axis [0, 1] did not finish." in said
    assert f"rank 1 is stopped (process {ranks[1].pid})" in said
    assert "not done after 1 s" in said
