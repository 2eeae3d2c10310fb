"""A rank that doesn't wait, as on GPUs, still learns which rank is missing: tried over gloo."""

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from shardlab.comm import World
from shardlab.comm.nccl_watchdog import Watchdog
from tests.limits import LIMIT
from tests.shardlab.pool import preload


def reduce_without_waiting(rank: int, folder: Path, pipe: Connection) -> None:
    """Join a world of two ranks and reduce; then rank 0 alone starts one more, without waiting."""
    stderr = os.open(folder / f"{rank}.err", os.O_WRONLY | os.O_CREAT)
    os.dup2(stderr, 2)
    store = dist.FileStore(str(folder / "store"), 2)
    world = World.join(store=store, rank=rank, size=2, backend="gloo", timeout=600)
    # A world on NCCL makes one itself.
    world.watchdog = Watchdog(world.failure_reporter, timeout=1.0)
    axis = world.axis("tensor", [0, 1])
    for _ in range(20):
        axis.all_reduce(torch.ones(4))
    pipe.send("ready")
    pipe.recv()
    pending = axis.start("all_reduce", torch.ones(4)) if rank == 0 else None
    time.sleep(600)
    del pending


def test_a_collective_without_a_wait_names_the_missing_rank(tmp_path: Path) -> None:
    preload()
    context = multiprocessing.get_context("forkserver")
    pipes = [context.Pipe() for _ in range(2)]
    ranks = [
        context.Process(
            target=reduce_without_waiting, args=(rank, tmp_path, pipes[rank][1]), daemon=True
        )
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
    report = (tmp_path / "0.err").read_text("utf-8")
    assert "rank 0: all_reduce on the tensor axis [0, 1] did not finish." in report
    assert f"rank 1 is stopped (process {stopped})" in report
    assert "not done after 1 s" in report
