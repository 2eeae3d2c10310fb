"""Measuring in the ranks that torchrun launched: this process is one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING

from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.run.launch import TIMEOUT, LaunchError, Measure, Progress
from costlab.run.rank import BACKENDS, describe_fault, in_a_line

if TYPE_CHECKING:
    from shardlab.comm import World


def launched(environment: Mapping[str, str]) -> bool:
    """Whether torchrun, or something that sets what it sets, started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys()


@contextlib.contextmanager
def joined(device: str, *, timeout: float = TIMEOUT) -> Iterator[World]:
    """Join the ranks that torchrun launched, for a whole run.

    Args:
        device: "cpu" (gloo, one thread a rank) or "cuda" (NCCL).
        timeout: seconds that a collective may take.

    Raises:
        LaunchError: the rendezvous failed: a port that is in use, an address that isn't there.
    """
    import torch

    from shardlab.comm import World

    torch.set_num_threads(1)
    try:
        backend, link = BACKENDS[device]
        world = World.join(backend=backend, link=link, timeout=timeout)
    except (RuntimeError, OSError, ValueError) as fault:
        raise LaunchError(f"the ranks of torchrun can't meet: {in_a_line(fault)}") from None
    try:
        yield world
    except BaseException:
        world.failure_reporter.report("broke off")
        raise
    else:
        world.close()


def run(
    measure: Measure, settings: Settings, world: World, on_progress: Progress
) -> Generator[Metric]:
    """Iterate `measure` on this rank; on rank 0 yield its metrics.

    Raises:
        LaunchError: this rank raised, or saw that another is gone.
    """
    speaks = world.rank == 0
    try:
        for item in measure(world, settings):
            if not speaks:
                continue
            if isinstance(item, Metric):
                yield item
            else:
                on_progress(item)
        world.whole.barrier()
    except Exception as fault:
        raise LaunchError(f"rank {world.rank} {describe_fault(world, fault)[1]}") from None
