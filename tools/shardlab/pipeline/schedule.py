"""GPipe, 1F1B, interleaved 1F1B and ZB-H1: each stage's order of computes, with its messages.

The first three differ in one number: how many forwards a stage runs before its first backward.
After those it alternates forward and backward, and ends with the remaining backwards. GPipe runs
all forwards first; 1F1B as few as keep the later stages busy. Their bubble is the same, but 1F1B
holds fewer micro-batches' activations at once. ZB-H1 is 1F1B with each backward in two steps.

p stages, s one of them; m micro-batches; v chunks a stage.

`with_exchanges` adds sends and receives to an order of computes, so that no stage deadlocks. The
computes are simulated in lockstep: every compute takes one tick. A message is exchanged, on
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
    Backward,
    Compute,
    Exchange,
    Forward,
    Receive,
    Schedule,
    ScheduleError,
    Send,
    Weight,
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


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards: m micro-batches live on every stage.

    Backwards run in the order of the forwards, so that gradients add up in the order in which one
    process would add them (`torch.distributed.pipelining.ScheduleGPipe` does so too).

    Raises:
        ScheduleError: fewer than one stage or micro-batch.
    """
    _check_sizes(stages, microbatches)
    every = _list_in_groups(microbatches, [0], microbatches)
    return with_exchanges([_alternate(every, every, microbatches) for _ in range(stages)])


def one_forward_one_backward(stages: int, microbatches: int) -> Schedule:
    """1F1B: p − s − 1 forwards first, then forward and backward in turn: min(m, p − s) live.

    Megatron's `forward_backward_pipelining_without_interleaving`; also right for m < p, which
    `torch.distributed.pipelining.Schedule1F1B` refuses.

    Raises:
        ScheduleError: fewer than one stage or micro-batch.
    """
    _check_sizes(stages, microbatches)
    every = _list_in_groups(microbatches, [0], microbatches)
    return with_exchanges([_alternate(every, every, stages - s - 1) for s in range(stages)])


def zero_bubble(stages: int, microbatches: int) -> Schedule:
    """ZB-H1: 1F1B, its weights' gradients in actions of their own: a third of the bubble.

    Stage s runs Weight s micro-batches after Backward. The Weights that remain at the end fill the
    time in which 1F1B waits for the last gradients. Live are p − s micro-batches as in 1F1B, and s
    micro-batches whose Weight is pending: min(m, p) on every stage, as many as on 1F1B's first
    stage. If forward, backward and weights take F, B and W, a stage idles (p − 1)(F + B − W)
    instead of 1F1B's (p − 1)(F + B + W), for m ≥ p and W ≤ min(F, B); never more than 1F1B. (Qi et
    al. 2023, "Zero Bubble Pipeline Parallelism".)

    Raises:
        ScheduleError: fewer than one stage or micro-batch.
    """
    _check_sizes(stages, microbatches)
    every = _list_in_groups(microbatches, [0], microbatches)
    orders = []
    for s in range(stages):
        order: list[Compute] = []
        for compute in _alternate(every, every, stages - s - 1):
            order.append(compute)
            if isinstance(compute, Backward) and compute.microbatch >= s:
                order.append(Weight(compute.microbatch - s))
        order += [Weight(m) for m in range(max(microbatches - s, 0), microbatches)]
        orders.append(order)
    return with_exchanges(orders)


def interleaved(
    stages: int, microbatches: int, chunks: int, *, group: int | None = None
) -> Schedule:
    """Interleaved 1F1B: a smaller bubble, by a factor of v, for v times the messages.

    Each stage holds v chunks, and micro-batches go through chunk after chunk in groups. 2(p−s−1) +
    (v−1)·group forwards come first, and one more micro-batch than that is the most that lives (a
    chunk's worth each). The order is Megatron's, of `get_schedule_table` and
    `get_pp_rank_microbatches`.

    Args:
        stages: p.
        microbatches: m.
        chunks: v, at least 2.
        group: micro-batches that go through a chunk before the next chunk's turn; unless given, p,
            or m if that is less.

    Raises:
        ScheduleError: fewer than two chunks or stages; a group smaller than p (or m), or larger
            than m; a rest of m / group that is neither 0 nor at least p: such an order is not just
            slow, in most cases it deadlocks. Megatron refuses these too, and m < p besides.
    """
    _check_sizes(stages, microbatches)
    if chunks < 2 or stages < 2:
        raise ScheduleError(
            f"interleaving needs at least 2 stages of at least 2 chunks, found {stages} of "
            f"{chunks}; choose --schedule 1f1b (one_forward_one_backward)"
        )
    group = min(stages, microbatches) if group is None else group
    if not _group_fits(group, stages, microbatches):
        good = [g for g in range(1, microbatches + 1) if _group_fits(g, stages, microbatches)]
        raise ScheduleError(
            f"{microbatches} micro-batches on {stages} stages cannot be interleaved in groups of "
            f"{group}, whose rest would wait for itself; choose a group of "
            f"{', '.join(map(str, good))}, or micro-batches that {stages} divides"
        )
    forwards = _list_in_groups(microbatches, range(chunks), group)
    backwards = _list_in_groups(microbatches, range(chunks - 1, -1, -1), group)
    first = [2 * (stages - s - 1) + (chunks - 1) * group for s in range(stages)]
    return with_exchanges([_alternate(forwards, backwards, warmup) for warmup in first])


def forward_only(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Every micro-batch forward and none backward: for evaluation.

    Raises:
        ScheduleError: fewer than one stage, micro-batch or chunk.
    """
    _check_sizes(stages, microbatches)
    if chunks < 1:
        raise ScheduleError(f"a stage holds at least 1 chunk, found {chunks}")
    forwards = _list_in_groups(microbatches, range(chunks), stages)
    order: list[Compute] = [Forward(m, c) for m, c in forwards]
    return with_exchanges([order for _ in range(stages)])


NAMES = ("gpipe", "1f1b", "zb-h1", "interleaved", "forward-only")


def by_name(kind: str, stages: int, microbatches: int, chunks: int | None = None) -> Schedule:
    """Return the schedule of a name in `NAMES`, as a command line gives it.

    Args:
        kind: which.
        stages: p.
        microbatches: m.
        chunks: v; 2 for interleaved and 1 for the others, unless given.

    Raises:
        ScheduleError: an unknown name, chunks for a schedule that has one a stage, or what the
            schedule itself refuses.
    """
    one_chunk = {"gpipe": gpipe, "1f1b": one_forward_one_backward, "zb-h1": zero_bubble}
    if kind in one_chunk:
        if chunks not in (None, 1):
            raise ScheduleError(
                f"--schedule {kind} has one chunk a stage, found {chunks}; choose --schedule "
                "interleaved"
            )
        return one_chunk[kind](stages, microbatches)
    if kind == "interleaved":
        return interleaved(stages, microbatches, 2 if chunks is None else chunks)
    if kind == "forward-only":
        return forward_only(stages, microbatches, 1 if chunks is None else chunks)
    raise ScheduleError(f"--schedule {kind} is not known; choose {', '.join(NAMES)}")


def _list_in_groups(microbatches: int, chunks: Sequence[int], group: int) -> list[tuple[int, int]]:
    """Return (micro-batch, chunk) group by group, each group through every chunk in turn."""
    return [
        (m, c)
        for first in range(0, microbatches, group)
        for c in chunks
        for m in range(first, min(first + group, microbatches))
    ]


def _alternate(
    forwards: Sequence[tuple[int, int]], backwards: Sequence[tuple[int, int]], warmup: int
) -> list[Compute]:
    """Return `warmup` forwards, then a forward and a backward in turn, then the other backwards."""
    warmup = min(warmup, len(forwards))
    order: list[Compute] = [Forward(*f) for f in forwards[:warmup]]
    for f, b in zip(forwards[warmup:], backwards, strict=False):
        order += [Forward(*f), Backward(*b)]
    return order + [Backward(*b) for b in backwards[len(forwards) - warmup :]]


def _group_fits(group: int, stages: int, microbatches: int) -> bool:
    """Return whether every group, also the last, is long enough to reach stage 0 again in time."""
    least = min(stages, microbatches)
    return least <= group <= microbatches and not 0 < microbatches % group < least


def _check_sizes(stages: int, microbatches: int) -> None:
    if stages < 1 or microbatches < 1:
        raise ScheduleError(
            f"a pipeline needs at least 1 stage and 1 micro-batch, found {stages} and "
            f"{microbatches}"
        )
