"""Run a function on ranks: processes on gloo with one thread each, which end with it."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from pages.blocks import PageError
from pages.programs import LIMIT, script
from shardlab.comm import World


def run_on_ranks(size: int, body: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `body(world, *arguments)` on each of `size` ranks; return their results in rank order.

    Raises:
        PageError: a rank raised an error or died.
    """
    context = multiprocessing.get_context("forkserver")
    # Imported once, for all ranks; an optimizer imports torch._dynamo.
    context.set_forkserver_preload(["torch._dynamo", "shardlab.comm", body.__module__])
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(size, mp_context=context) as executor,
    ):
        ranks = [
            executor.submit(_work, f"{folder}/store", rank, size, body, arguments)
            for rank in range(size)
        ]
        done, _ = wait(ranks, return_when=FIRST_EXCEPTION)
        for rank, result in enumerate(ranks):
            if result in done and (error := result.exception()) is not None:
                raise PageError(f"{body.__name__}, rank {rank} of {size}: {error}") from error
        return [result.result() for result in ranks]


def report_cases(size: int, program: Path, cases: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return what rank 0 reports of each case, by a program's `report(Settings(…), world)`."""
    reports = run_on_ranks(size, run_reports, program, list(cases.values()))[0]
    return dict(zip(cases, reports, strict=True))


def run_reports(world: World, program: Path, cases: list[dict[str, Any]]) -> list[str]:
    """Return a program's report of each case, on one rank."""
    lab = script(program)
    return [lab.report(lab.Settings(**case), world) for case in cases]


def _work(store: str, rank: int, size: int, body: Callable[..., Any], arguments: Any) -> Any:
    torch.set_num_threads(1)
    file = dist.FileStore(store, size)  # type: ignore[attr-defined]
    with World.join(backend="gloo", timeout=LIMIT / 2, store=file, rank=rank, size=size) as world:
        torch.manual_seed(0)
        return body(world, *arguments)


@contextmanager
def alone(rank: int, size: int) -> Iterator[World]:
    """Be rank `rank` of `size` in one process: torch's fake backend, which moves no data."""
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield World()
    finally:
        dist.destroy_process_group()
