"""A rank of a launch: joins the world, iterates the measurement, tells the parent how it went."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costlab.record.options import Settings
from costlab.record.result import Item

if TYPE_CHECKING:
    from shardlab.comm import World


@dataclass(frozen=True)
class Place:
    """A rank's place: which of how many, and the folder where they meet.

    Args:
        timeout: seconds that a collective may take.
    """

    rank: int
    ranks: int
    folder: str
    timeout: float


# Of each device the backend, and the link: gloo as our kernels carry it.
BACKENDS = {"cuda": ("nccl", "torch"), "cpu": ("gloo", "fast-gloo")}


def work(
    pipe: Any, place: Place, measure: Callable[[World, Settings], Iterator[Item]],
    settings: Settings,
) -> None:  # fmt: skip
    """Live a rank's life.

    What it sends are pairs: ("joined", None); from rank 0 ("item", …) for each that `measure`
    yields; at the end ("done", None), ("raised", line) or, where it only saw that another rank is
    gone, ("symptom", line). Whatever libraries print goes to a file in the folder.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = os.open(
        str(Path(place.folder, f"rank-{place.rank}.log")), os.O_WRONLY | os.O_CREAT, 0o600
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        with _join(place, settings) as world:
            pipe.send(("joined", None))
            try:
                for item in measure(world, settings):
                    if place.rank == 0:
                        pipe.send(("item", item))
                world.whole.barrier()
            except Exception as error:
                pipe.send(describe_fault(world, error))
                os._exit(1)  # leaving the group in order would wait for ranks that are gone
    except Exception as error:
        pipe.send(("raised", f"could not join: {in_a_line(error)}"))
        return
    pipe.send(("done", None))


def _join(place: Place, settings: Settings) -> World:
    import torch
    import torch.distributed as dist

    from shardlab.comm import World

    torch.set_num_threads(1)
    device = torch.device("cpu")
    if settings.device == "cuda":
        if torch.cuda.device_count() < place.ranks:
            raise ValueError(
                f"{place.ranks} ranks want a GPU each; there are {torch.cuda.device_count()}"
            )
        device = torch.device("cuda", place.rank)
    backend, link = BACKENDS[device.type]
    return World.join(
        backend=backend,
        link=link,
        device=device,
        store=dist.FileStore(str(Path(place.folder, "store")), place.ranks),  # type: ignore[attr-defined]
        rank=place.rank,
        size=place.ranks,
        timeout=place.timeout,
    )


def describe_fault(world: World, error: Exception) -> tuple[str, str]:
    """Return what to say of an exception: a cause, or a symptom of another rank's fault.

    It also leaves word in the ranks' store, so that the others can name this one.
    """
    from shardlab.comm import CollectiveError

    if not isinstance(error, CollectiveError) and _of_backend(error):
        error = world.failure_reporter.explain("a collective", range(world.size), error)
    if isinstance(error, CollectiveError):
        return "symptom", f"waited in vain: {_named(world.rank, str(error))}"
    line = in_a_line(error)
    world.failure_reporter.report(f"raised {line}")
    return "raised", f"raised {line}"


def _of_backend(error: Exception) -> bool:
    """Whether a backend raised it: gloo's come as plain RuntimeErrors that name its files."""
    import torch.distributed as dist

    message = str(error)
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and ("gloo" in message or "Connection closed" in message)
    )


def _named(rank: int, message: str) -> str:
    """Return a collective's error in one line, without this rank's name, which stands before it."""
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if not line.startswith("The backend said")] or lines
    return " ".join(lines).removeprefix(f"rank {rank}: ")


def in_a_line(error: BaseException) -> str:
    """Return an exception in one line of at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300].removesuffix(":")
