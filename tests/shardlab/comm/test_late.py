"""A rank that never waits, as on GPUs none does, still learns who is missing: tried over gloo."""

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from shardlab.comm import World
from shardlab.comm.late import Late
from tests.limits import LIMIT
from tests.shardlab.pool import preload


def at_work(rank: int, folder: Path, told: Connection) -> None:
    """Join a world of two, reduce together, and then, on rank 0, alone and without waiting."""
    said = os.open(folder / f"{rank}.err", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 2)
    store = dist.FileStore(str(folder / "store"), 2)
    world = World.join(store=store, rank=rank, size=2, backend="gloo", timeout=600)
    world.late = Late(world.witness, patience=1.0)  # a world on NCCL has one of itself
    axis = world.axis("tensor", [0, 1])
    for _ in range(20):
        axis.all_reduce(torch.ones(4))
    told.send("ready")
    told.recv()
    pending = axis.start("all_reduce", torch.ones(4)) if rank == 0 else None
    time.sleep(600)
    del pending


def test_a_collective_that_nobody_waits_for_names_the_rank_that_is_missing(tmp_path: Path) -> None:
    preload()
    context = multiprocessing.get_context("forkserver")
    pipes = [context.Pipe() for _ in range(2)]
    ranks = [
        context.Process(target=at_work, args=(rank, tmp_path, pipes[rank][1]), daemon=True)
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            rank.start()
        for pipe, _ in pipes:
            assert pipe.poll(LIMIT) and pipe.recv() == "ready"
        stopped = ranks[1].pid
        assert stopped
        os.kill(stopped, signal.SIGSTOP)
        pipes[0][0].send("go on")
        ranks[0].join(LIMIT)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    assert ranks[0].exitcode == 1
    said = (tmp_path / "0.err").read_text("utf-8")
    assert "rank 0: all_reduce on the tensor axis [0, 1] did not finish." in said
    assert f"rank 1 is stopped (process {stopped})" in said
    assert "not done after 1 s" in said
