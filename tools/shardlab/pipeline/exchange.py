"""Sends and receives put into an order of computes, so that no stage waits for ever.

The computes are played in lockstep: every forward and backward takes one tick. A message is
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

from shardlab.pipeline.action import Action, Compute, Exchange, Receive, Schedule, Send, chunks_in
from shardlab.pipeline.piece import feeds, received, sent
from shardlab.pipeline.timeline import simulate


def with_exchanges(orders: Sequence[Sequence[Compute]]) -> Schedule:
    """Return each stage's computes with the exchanges between them.

    A receive stands at the tick at which its message is sent, which may be before other computes:
    posted early, it is there when it is needed. A stage that is its own neighbour (p = 1 with
    several chunks) sends itself nothing.

    Raises:
        ScheduleError: the computes wait for each other.
    """
    stages, chunks = len(orders), chunks_in(orders)
    timeline = simulate(orders)
    out: list[dict[float, list[Send]]] = [defaultdict(list) for _ in orders]
    into: list[dict[float, list[Receive]]] = [defaultdict(list) for _ in orders]
    for stage, spans in enumerate(timeline):
        for span in spans:
            target = feeds(stage, span.action, stages, chunks)
            if target is not None and target[0] != stage:
                out[stage][span.end].append(sent(span.action))
                into[target[0]][span.end].append(received(target[1]))
    schedule: Schedule = []
    for stage, spans in enumerate(timeline):
        starts: dict[float, Compute] = {span.start: span.action for span in spans}
        actions: list[Action] = []
        for tick in sorted({*starts, *out[stage], *into[stage]}):
            if tick in out[stage] or tick in into[stage]:
                actions.append(Exchange(tuple(out[stage][tick]), tuple(into[stage][tick])))
            if tick in starts:
                actions.append(starts[tick])
        schedule.append(actions)
    return schedule
