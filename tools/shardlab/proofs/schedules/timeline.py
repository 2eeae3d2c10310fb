"""The timeline of a schedule, its bubble, its peak number of live micro-batches, and its picture.

Times have the unit of the costs. Messages take no time. The picture is text, or a mermaid Gantt
chart.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardlab.pipeline.action import (
    Action,
    Backward,
    Compute,
    Forward,
    ScheduleError,
    Span,
    Weight,
    chunks_in,
    computes,
    follows,
    name,
    needs,
)

Timeline = list[list[Span]]


def simulate(
    schedule: Sequence[Sequence[Action]],
    *,
    forward: float = 1,
    backward: float = 1,
    weight: float = 1,
) -> Timeline:
    """Simulate a schedule: a compute starts as soon as its stage is free and its inputs exist.

    Args:
        schedule: one list of actions a stage; its messages are ignored.
        forward: the cost of one forward of one chunk.
        backward: the cost of one backward of one chunk, without `weight` if the schedule has
            `Weight` actions.
        weight: the cost of a `Weight`.

    Returns:
        one list of spans a stage.

    Raises:
        ScheduleError: the stages wait for each other; says which stage waits before which compute.
    """
    orders = [computes(actions) for actions in schedule]
    clock = _Clock(orders, (forward, backward, weight))
    moved = True
    while moved:
        moved = False
        for stage in range(len(orders)):
            moved |= clock.advance(stage)
    stuck = [
        f"stage {stage} waits before {name(order[len(spans)])}"
        for stage, (order, spans) in enumerate(zip(orders, clock.spans, strict=True))
        if len(spans) < len(order)
    ]
    if stuck:
        raise ScheduleError("no stage can go on: " + "; ".join(stuck))
    return clock.spans


class _Clock:
    """The spans so far, and when each compute ended."""

    def __init__(self, orders: list[list[Compute]], costs: tuple[float, float, float]) -> None:
        self.spans: Timeline = [[] for _ in orders]
        self._orders = orders
        self._chunks = chunks_in(orders)
        self._cost = dict(zip((Forward, Backward, Weight), costs, strict=True))
        self._ended: dict[tuple[int, Compute], float] = {}

    def advance(self, stage: int) -> bool:
        """Run a stage as far as its inputs exist; return whether it computed anything."""
        spans, order = self.spans[stage], self._orders[stage]
        before = len(spans)
        while len(spans) < len(order):
            action = order[len(spans)]
            ready = self._ready(stage, action)
            if ready is None:
                break
            start = max(ready, spans[-1].end if spans else 0)
            end = start + self._cost[type(action)]
            spans.append(Span(action, start, end))
            self._ended[stage, action] = end
        return len(spans) > before

    def _ready(self, stage: int, action: Compute) -> float | None:
        """Return the time at which an action's inputs exist; None if they don't exist yet."""
        before = follows(action)
        if before and (stage, before) not in self._ended:
            return None
        source = needs(stage, action, len(self._orders), self._chunks)
        return 0 if source is None else self._ended.get(source)


def bubble(timeline: Timeline) -> float:
    """Return the share of all stages' time, from first start to last end, in which they idle.

    With equal stages, free messages and m micro-batches on p stages it is (p−1)/(m+p−1) for GPipe
    and for 1F1B alike, whatever a forward and a backward cost; with v chunks a stage, interleaved,
    it is (p−1)/(v·m+p−1). For ZB-H1, where forward, backward and weights cost F, B and W, with
    m ≥ p and W ≤ min(F, B), it is i/(m(F+B+W)+i) with i = (p−1)(F+B−W). (Narayanan et al. 2021,
    section 2.2, divide by the ideal time instead of the whole: (p−1)/m.)
    """
    spans = [span for stage in timeline for span in stage]
    whole = max(s.end for s in spans) - min(s.start for s in spans)
    return 1 - sum(s.end - s.start for s in spans) / (len(timeline) * whole)


def peak_live(actions: Sequence[Action]) -> int:
    """Return how many micro-batches a stage holds activations of, at most, chunk by chunk.

    A micro-batch lives, in one chunk, from its forward to its backward, or to its `Weight` where
    there is one; a schedule without any backward keeps none. With v chunks, one live
    micro-batch is 1/v of a stage's layers.
    """
    order = computes(actions)
    kinds = {type(a) for a in order}
    if Backward not in kinds:
        return 0
    last = Weight if Weight in kinds else Backward
    live = peak = 0
    for action in order:
        live += isinstance(action, Forward) - isinstance(action, last)
        peak = max(peak, live)
    return peak


_IDLE = "·"


def draw_text(timeline: Timeline) -> str:
    """Return one line a stage, one column a unit of time; an idle unit is a dot.

    A compute that takes several units is continued with dashes.

    Raises:
        ScheduleError: a start or an end is not a whole number.
    """
    for span in (span for spans in timeline for span in spans):
        if span.start != int(span.start) or span.end != int(span.end):
            raise ScheduleError(
                f"{name(span.action)} takes {span.start} to {span.end}: a picture in text needs "
                "costs that are whole numbers"
            )
    end = int(max(span.end for spans in timeline for span in spans))
    width = 1 + max(len(name(span.action)) for spans in timeline for span in spans)
    head = len(f"stage {len(timeline) - 1}") + 2
    lines = []
    for stage, spans in enumerate(timeline):
        cells = [_IDLE.ljust(width)] * end
        for span in spans:
            length = int(span.end - span.start)
            cells[int(span.start)] = name(span.action).ljust(width, "-" if length > 1 else " ")
            for unit in range(int(span.start) + 1, int(span.end)):
                cells[unit] = "-" * (width - 1) + ("-" if unit + 1 < span.end else " ")
        lines.append((f"stage {stage}".ljust(head) + "".join(cells)).rstrip())
    return "\n".join(lines)


def draw_mermaid(timeline: Timeline, title: str) -> str:
    """Return a Gantt chart in mermaid's language, a section a stage; backwards are marked.

    Times are in thousandths (`dateFormat x`), the axis in units: with `X` mermaid would read starts
    as milliseconds and ends as seconds, and with either no fractions.
    """
    lines = ["gantt", f"  title {title}", "  dateFormat x", "  axisFormat %s"]
    for stage, spans in enumerate(timeline):
        lines.append(f"  section stage {stage}")
        for span in spans:
            mark = {Backward: "active, ", Weight: "done, "}.get(type(span.action), "")
            times = f"{span.start * 1000:.0f}, {span.end * 1000:.0f}"
            lines.append(f"  {name(span.action)} : {mark}{times}")
    return "\n".join(lines)
