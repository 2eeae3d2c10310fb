"""One collective over each link: gloo's own, the link "fast-gloo", shared memory.

A size is that of each rank's input, in KiB of fp32. A step is several calls if one call takes
microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from costlab.implementations.rounds import Step
from shardlab.comm import World

SIZES = (1, 16, 64, 256, 512, 1024, 4096, 16384, 65536)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
BASE = "gloo"
Call = Callable[[], object]


@contextmanager
def build(world: World, *, collective: str, kib: int) -> Iterator[Mapping[str, Step]]:
    """The contestants for one collective and size, on every rank."""
    n, count = world.size, kib * 256 // world.size * world.size
    x = torch.ones(count)
    out = torch.empty(
        {"all_gather": n * count, "reduce_scatter": count // n}.get(collective, count)
    )
    group = dist.group.WORLD
    calls: dict[str, Call] = {
        "gloo": lambda: gloo(group, collective, x, out),
        "shared memory": lambda: getattr(shared, collective)(x, out=out),
        "axis over gloo": lambda: getattr(torch_axis, collective)(x, out=out),
        "axis over gloo, checked": lambda: getattr(checked, collective)(x, out=out),
    }
    torch_axis = world.whole
    shared = world.axis("shared", range(n), link="shared-memory")
    checked = World(check=True, link=world.link).whole
    yield {name: repeat(call, 20 if kib < 256 else 1) for name, call in calls.items()}


def repeat(call: Call, times: int) -> Step:
    def step() -> None:
        for _ in range(times):
            call()

    return step


def gloo(group: object, collective: str, x: torch.Tensor, out: torch.Tensor) -> None:
    """gloo's own, without the checks of torch.distributed's functions."""
    if collective == "all_reduce":
        group.allreduce([out.copy_(x)]).wait()
    elif collective == "all_gather":
        group._allgather_base(out, x).wait()
    else:
        group._reduce_scatter_base(out, x).wait()


@contextmanager
def crowded(world: World, *, kib: int) -> Iterator[Mapping[str, Step]]:
    """One all-reduce a step, where ranks outnumber cores: gloo's and shared memory's.

    gloo's is measured as Linux schedules a process, and as it schedules a batch job.
    """
    x = torch.ones(kib * 256)
    out = torch.empty_like(x)
    shared = world.axis("shared", range(world.size), link="shared-memory")
    calls: dict[str, Call] = {
        BASE: lambda: gloo(dist.group.WORLD, "all_reduce", x, out),
        "shared memory": lambda: shared.all_reduce(x, out=out),
    }
    threads = Threads()
    yield {
        **{name: threads.under(os.SCHED_OTHER, call) for name, call in calls.items()},
        "gloo, batch": threads.under(os.SCHED_BATCH, calls[BASE]),
    }
    threads.schedule(os.SCHED_OTHER)


class Threads:
    """All threads of this process, gloo's among them; Linux schedules each by a policy."""

    def __init__(self) -> None:
        self._policy = os.SCHED_OTHER

    def schedule(self, policy: int) -> None:
        """Give each the policy, unless it has it."""
        if policy != self._policy:
            for thread in Path("/proc/self/task").iterdir():
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(0))
            self._policy = policy

    def under(self, policy: int, call: Call) -> Step:
        """Call under a policy; a change of it takes some microseconds of the step."""

        def step() -> None:
            self.schedule(policy)
            call()

        return step
