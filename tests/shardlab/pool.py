"""Persistent workers: n processes on gloo, one thread each, that run a test body on every rank.

A spawn with `import torch` costs seconds, a message to a living worker milliseconds. A body is a
module-level function whose first argument is the rank's `World`. If a rank raises, the others may
be stuck in a collective for ever, so the whole pool is killed and started anew for the next test;
so it is when a body takes longer than its time.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import pickle
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tests.limits import LIMIT


def preload() -> None:
    """Start the process that all workers are forked from; it imports while the caller goes on."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.shardlab.preload"])
    multiprocessing.forkserver.ensure_running()


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
        self._workers: list[Any] = []
        self._pipes: list[Any] = []

    def run(self, body: Callable[..., Any], *args: Any, timeout: float = LIMIT) -> list[Any]:
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
        preload()
        import torch.distributed as dist

        self._store = dist.TCPStore(
            "127.0.0.1", 0, self.size, is_master=True, wait_for_workers=False
        )
        for rank in range(self.size):
            ours, child_end = self._context.Pipe()
            worker = self._context.Process(
                target=_work,
                args=(child_end, self._store.port, rank, self.size, self._device),
                daemon=True,
            )
            worker.start()
            child_end.close()
            self._workers.append(worker)
            self._pipes.append(ours)
        answers = self._answers(LIMIT)
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
        self._workers, self._pipes = [], []


def _work(pipe: Any, store: str, rank: int, size: int, device: str) -> None:
    """A worker's life: join the world, then answer one body after another."""
    import torch
    import torch.distributed as dist

    from shardlab.comm import World

    torch.set_num_threads(1)
    gc.set_threshold(20_000)  # a collection every 700 objects took 4 % of the suite's time
    take_turns()
    _share_gloo_device()
    try:
        place = None
        if device == "cuda":
            place = torch.device("cuda", rank % torch.cuda.device_count())
        enough = device == "cuda" and torch.cuda.device_count() >= size
        world = World.join(
            backend="nccl" if enough else "gloo",
            device=place,
            store=dist.TCPStore("127.0.0.1", store, size, is_master=False),
            rank=rank,
            size=size,
            timeout=LIMIT / 2,  # so that a rank says what it waits for before the pool gives up
            # More ranks than cores: eight ranks wait for 224 messages of one all-reduce over gloo.
            link="torch" if device == "cuda" or size <= 4 else "shared-memory",
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


def take_turns() -> None:
    """Ask Linux not to interrupt whoever runs for whoever wakes up.

    A message over gloo wakes several threads in turn, and with eight ranks on two cores they cut
    each other short: as batch jobs their all-reduce of 1 KiB takes a third of the time
    (docs/reference/kernels-speed.md).
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(PermissionError):  # where it is forbidden: only slower
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _share_gloo_device() -> None:
    """Let all of this process's gloo groups wait in one thread, not in one each.

    torch gives every group a device of its own, whose thread looks a hundred times a second. With
    the oracles' groups, hundreds for eight ranks, that took a third of the processors.
    """
    from torch.distributed import distributed_c10d as c10d

    device = c10d.ProcessGroupGloo.create_default_device()

    class Gloo(c10d.ProcessGroupGloo):
        def __init__(self, store: Any, rank: int, size: int, timeout: Any, **later: bool) -> None:
            assert not any(later.values()), later  # torch 2.15's enable_reconfigure=False
            options = self._Options()
            options._devices, options._timeout = [device], timeout
            super().__init__(store, rank, size, options)

    c10d.ProcessGroupGloo = Gloo
