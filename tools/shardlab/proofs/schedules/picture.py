"""A schedule as a picture, in text or as a mermaid Gantt chart, from its timeline."""

from __future__ import annotations

from shardlab.pipeline.action import Backward, ScheduleError, Weight, name
from shardlab.proofs.schedules.timeline import Timeline

_IDLE = "·"


def text(timeline: Timeline) -> str:
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


def mermaid(timeline: Timeline, title: str) -> str:
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
