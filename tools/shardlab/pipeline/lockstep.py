"""Adds sends and receives to an order of computes, so that no stage deadlocks.

The computes are simulated in lockstep: every compute takes one tick. A message is exchanged, on
both stages, at the tick at which the compute that makes it ends. All messages of a stage at one
tick form one `Exchange`. An exchange at tick t then waits only for exchanges at tick t. In the
order of ticks all of them complete, even if every send blocks until its receive is posted. A stage
ends at most one compute a tick, so at most one message a tick goes from one stage to another.
Messages are received in the order of the sends and need no tags. Real computes need not take equal
time, as only their order counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from shardlab.pipeline.action import (
    Action,
    Compute,
    Exchange,
    Receive,
    Schedule,
    ScheduleError,
    Send,
    chunks_in,
    feeds,
    follows,
    name,
    needs,
)


def with_exchanges(orders: Sequence[Sequence[Compute]]) -> Schedule:
    """Return each stage's computes with the exchanges between them.

    A receive is placed at the tick at which its message is sent, which may be before other
    computes, so that the message is there when it is needed. A stage that is its own neighbour
    (p = 1 with several chunks) sends itself no message.

    Raises:
        ScheduleError: the computes wait for each other.
    """
    stages, chunks = len(orders), chunks_in(orders)
    ticks = _assign_ticks(orders, chunks)
    sends: list[dict[int, list[Send]]] = [defaultdict(list) for _ in orders]
    receives: list[dict[int, list[Receive]]] = [defaultdict(list) for _ in orders]
    for stage, order in enumerate(orders):
        for compute in order:
            target = feeds(stage, compute, stages, chunks)
            if target is not None and target[0] != stage:
                end = ticks[stage, compute] + 1
                sends[stage][end].append(Send(compute))
                receives[target[0]][end].append(Receive(target[1]))
    schedule: Schedule = []
    for stage, order in enumerate(orders):
        starts = {ticks[stage, compute]: compute for compute in order}
        actions: list[Action] = []
        for tick in sorted({*starts, *sends[stage], *receives[stage]}):
            if tick in sends[stage] or tick in receives[stage]:
                actions.append(Exchange(tuple(sends[stage][tick]), tuple(receives[stage][tick])))
            if tick in starts:
                actions.append(starts[tick])
        schedule.append(actions)
    return schedule


def _assign_ticks(
    orders: Sequence[Sequence[Compute]], chunks: int
) -> dict[tuple[int, Compute], int]:
    """Return the tick of each compute: the first at which its stage is free and inputs exist."""
    ticks: dict[tuple[int, Compute], int] = {}
    done = [0] * len(orders)
    tick = 0
    while waiting := [(s, order[done[s]]) for s, order in enumerate(orders) if order[done[s] :]]:
        ready = [
            (s, c)
            for s, c in waiting
            if all(n in ticks for n in _list_inputs(s, c, orders, chunks))
        ]
        if not ready:
            stuck = "; ".join(f"stage {s} waits before {name(c)}" for s, c in waiting)
            raise ScheduleError(f"no stage can go on: {stuck}")
        for stage, compute in ready:
            ticks[stage, compute] = tick
            done[stage] += 1
        tick += 1
    return ticks


def _list_inputs(
    stage: int, compute: Compute, orders: Sequence[Sequence[Compute]], chunks: int
) -> list[tuple[int, Compute]]:
    previous = follows(compute)
    source = needs(stage, compute, len(orders), chunks)
    return [*([(stage, previous)] if previous else []), *([source] if source else [])]
