"""A section that measures one metric and then fails as FAULT says, and signals the bench BENCH."""

import os
import signal
import threading
from collections.abc import Iterator

from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.sections.plan import Plan
from shardlab.comm import World


def measure(
    world: World, settings: Settings, fault: str = "", bench: int = 0
) -> Iterator[Metric | str]:
    fault, bench = fault or os.environ["FAULT"], bench or int(os.environ["BENCH"])
    if fault == "killed at once" and world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.whole.barrier()
    yield Metric(id="count.before", value=1, unit="count", how="counted")
    world.whole.barrier()
    yield "half-way"
    if world.rank == 1 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if world.rank == 1 and fault == "hangs":
        threading.Event().wait()
    if world.rank == 1 and fault in ("interrupted", "asked to end"):
        which = signal.SIGINT if fault == "interrupted" else signal.SIGTERM
        os.kill(bench, which)
        threading.Event().wait()
    world.whole.barrier()
    yield Metric(id="count.after", value=1, unit="count", how="counted")


PLAN = Plan(measure, ranks=lambda _: (2,))
