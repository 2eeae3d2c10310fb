"""Sends and receives put into an order of computes, so that no stage waits for ever.

The computes are played in lockstep: every compute takes one tick. A message is
exchanged, on both sides, at the tick at which the compute that sends it ends, and all that a stage
sends and receives at one tick is one `Exchange`. Then an exchange at tick t can only wait for
others at tick t: taken in the order of ticks they all complete, even if every send blocks until its
receive is posted. A stage ends at most one compute a tick, so at most one message a tick goes from
one stage to another, and is received in the order of the sends: no tags needed. Real computes need
not take equal time for that; only the order counts.
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

    A receive stands at the tick at which its message is sent, which may be before other computes:
    posted early, it is there when it is needed. A stage that is its own neighbour (p = 1 with
    several chunks) sends itself nothing.

    Raises:
        ScheduleError: the computes wait for each other.
    """
    stages, chunks = len(orders), chunks_in(orders)
    at = _ticks(orders, chunks)
    out: list[dict[int, list[Send]]] = [defaultdict(list) for _ in orders]
    into: list[dict[int, list[Receive]]] = [defaultdict(list) for _ in orders]
    for stage, order in enumerate(orders):
        for compute in order:
            target = feeds(stage, compute, stages, chunks)
            if target is not None and target[0] != stage:
                end = at[stage, compute] + 1
                out[stage][end].append(Send(compute))
                into[target[0]][end].append(Receive(target[1]))
    schedule: Schedule = []
    for stage, order in enumerate(orders):
        starts = {at[stage, compute]: compute for compute in order}
        actions: list[Action] = []
        for tick in sorted({*starts, *out[stage], *into[stage]}):
            if tick in out[stage] or tick in into[stage]:
                actions.append(Exchange(tuple(out[stage][tick]), tuple(into[stage][tick])))
            if tick in starts:
                actions.append(starts[tick])
        schedule.append(actions)
    return schedule


def _ticks(orders: Sequence[Sequence[Compute]], chunks: int) -> dict[tuple[int, Compute], int]:
    """Return the tick of each stage's computes: the first at which stage and input are free."""
    at: dict[tuple[int, Compute], int] = {}
    done = [0] * len(orders)
    tick = 0
    while waiting := [(s, order[done[s]]) for s, order in enumerate(orders) if order[done[s] :]]:
        ready = [(s, c) for s, c in waiting if all(n in at for n in _inputs(s, c, orders, chunks))]
        if not ready:
            stuck = "; ".join(f"stage {s} waits before {name(c)}" for s, c in waiting)
            raise ScheduleError(f"no stage can go on: {stuck}")
        for stage, compute in ready:
            at[stage, compute] = tick
            done[stage] += 1
        tick += 1
    return at


def _inputs(
    stage: int, compute: Compute, orders: Sequence[Sequence[Compute]], chunks: int
) -> list[tuple[int, Compute]]:
    before = follows(compute)
    other = needs(stage, compute, len(orders), chunks)
    return [*([(stage, before)] if before else []), *([other] if other else [])]
