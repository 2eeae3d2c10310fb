"""One collective over each link: gloo's own, the axis's over gloo, shared memory's.

A size is that of each rank's input, in KiB of fp32. A step is several calls if one call takes
microseconds.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from costlab.implementations.rounds import Step
from shardlab.comm import World

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
    axes = {
        "axis over gloo": world.whole,
        "axis over gloo, checked": World(check=True, link=world.link).whole,
        "shared memory": world.axis("shared", range(n), link="shared-memory"),
    }
    calls: dict[str, Call] = {BASE: lambda: _gloo(collective, x, out)} | {
        name: partial(getattr(axis, collective), x, out=out) for name, axis in axes.items()
    }
    yield {name: _repeated(call, 20 if kib < 256 else 1) for name, call in calls.items()}


@contextmanager
def crowded(world: World, *, kib: int) -> Iterator[Mapping[str, Step]]:
    """One all-reduce a step, where ranks outnumber cores.

    gloo's runs as Linux schedules a process, and as it schedules a batch job.
    """
    x = torch.ones(kib * 256)
    out = torch.empty_like(x)
    shared = world.axis("shared", range(world.size), link="shared-memory")
    calls: dict[str, Call] = {
        BASE: lambda: _gloo("all_reduce", x, out),
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
        """Return a step that calls under a policy; to change it takes microseconds of the step."""

        def step() -> None:
            self.schedule(policy)
            call()

        return step


def _gloo(collective: str, x: Tensor, out: Tensor) -> None:
    """Call gloo's own, without the checks of torch.distributed's functions."""
    group: Any = dist.group.WORLD
    if collective == "all_reduce":
        group.allreduce([out.copy_(x)]).wait()
    elif collective == "all_gather":
        group._allgather_base(out, x).wait()
    else:
        group._reduce_scatter_base(out, x).wait()


def _repeated(call: Call, times: int) -> Step:
    def step() -> None:
        for _ in range(times):
            call()

    return step
