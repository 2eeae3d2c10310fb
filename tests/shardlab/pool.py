"""Persistent workers: n processes on gloo, one thread each, that run a test body on every rank.

A spawn with `import torch` costs seconds, a message to a living worker milliseconds. A body is a
module-level function whose first argument is the rank's `World`. If a rank raises, the others may
be stuck in a collective for ever, so the whole pool is killed and started anew for the next test;
so it is when a body takes longer than its time.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import pickle
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

START = 120.0  # seconds for the workers to come up: they import torch


class Pool:
    """Workers of one world size.

    Args:
        size: ranks.
        device: "cpu" or "cuda" (the ranks share the GPUs there are, over gloo if too few).
    """

    def __init__(self, size: int, device: str = "cpu") -> None:
        self.size = size
        self._device = device
        self._context = multiprocessing.get_context("forkserver")
        # torch._dynamo: whoever makes an optimizer imports it, 1.3 s in each worker; the oracles
        # take longer. What can't be imported here is left to the workers.
        self._context.set_forkserver_preload(
            ["torch", "torch.distributed", "torch._dynamo", "shardlab.comm",
             "costlab.contestants.megatron", "costlab.contestants.dtensor"]
        )  # fmt: skip
        self._workers: list[Any] = []
        self._pipes: list[Any] = []

    def run(self, body: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
        """Run `body(world, *args)` on every rank; return what each returned, in rank order.

        Raises:
            Failed: (pytest's) a rank raised, died or ran out of time; with every traceback.
        """
        if not self._workers:
            self._start()
        message = pickle.dumps((body, args))
        for pipe in self._pipes:
            pipe.send_bytes(message)
        answers = self._answers(timeout)
        wrong = [
            f"rank {r}:\n{what}" for r, (kind, what) in enumerate(answers) if kind != "returned"
        ]
        if wrong:
            self.stop()
            pytest.fail(f"{body.__name__} on {self.size} ranks\n" + "\n".join(wrong), pytrace=False)
        return [pickle.loads(what) for _, what in answers]

    def _answers(self, timeout: float) -> list[tuple[str, Any]]:
        """Collect one answer a rank; once one failed, the others get a second and no more."""
        end = time.monotonic() + timeout
        answers: list[tuple[str, Any] | None] = [None] * self.size
        while missing := [r for r in range(self.size) if answers[r] is None]:
            ready = multiprocessing.connection.wait(
                [self._pipes[r] for r in missing], max(0.0, end - time.monotonic())
            )
            if not ready:
                break
            for rank in missing:
                if self._pipes[rank] in ready:
                    try:
                        answers[rank] = self._pipes[rank].recv()
                    except EOFError:
                        code = self._workers[rank].exitcode
                        answers[rank] = ("died", f"the process ended (exit code {code})")
                    if answers[rank][0] != "returned":  # type: ignore[index]
                        end = min(end, time.monotonic() + 1.0)
        return [
            a or ("late", f"no answer within {timeout:.0f} s, or after another failed")
            for a in answers
        ]

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="shardlab-pool-"))
        for rank in range(self.size):
            ours, theirs = self._context.Pipe()
            worker = self._context.Process(
                target=_work,
                args=(theirs, str(self._folder / "store"), rank, self.size, self._device),
                daemon=True,
            )
            worker.start()
            theirs.close()
            self._workers.append(worker)
            self._pipes.append(ours)
        answers = self._answers(START)
        wrong = [what for kind, what in answers if kind != "returned"]
        if wrong:
            self.stop()
            raise RuntimeError("the pool did not start:\n" + "\n".join(wrong))

    def stop(self) -> None:
        """Kill the workers; the next `run` starts new ones."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()
        for pipe in self._pipes:
            pipe.close()
        if self._workers:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._workers, self._pipes = [], []


def _work(pipe: Any, store: str, rank: int, size: int, device: str) -> None:
    """A worker's life: join the world, then answer one body after another."""
    import torch
    import torch.distributed as dist

    from shardlab.comm import World

    torch.set_num_threads(1)
    try:
        place = None
        if device == "cuda":
            place = torch.device("cuda", rank % torch.cuda.device_count())
        enough = device == "cuda" and torch.cuda.device_count() >= size
        world = World.join(
            backend="nccl" if enough else "gloo",
            device=place,
            store=dist.FileStore(store, size),
            rank=rank,
            size=size,
            timeout=30.0,
        )
        pipe.send(("returned", b""))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))
        return
    while True:
        try:
            body, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            torch.manual_seed(0)
            pipe.send(("returned", pickle.dumps(body(world, *args))))
        except BaseException:
            pipe.send(("raised", traceback.format_exc()))
