"""The figure of a pipeline's schedule: shardlab's own lists of actions, played against a clock."""

from functools import cache
from pathlib import Path
from typing import Any

from shardlab.pipeline.action import (
    Exchange,
    Schedule,
    ScheduleError,
    Weight,
    chunks_in,
    computes,
    name,
)
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import Timeline, bubble, peak_live, simulate
from sitelab.figures import controls, quantities
from sitelab.figures.shown import Figure, picture

# As `by_name` takes them: kind, and chunks a stage.
KINDS = {
    "gpipe": ("gpipe", None),
    "1f1b": ("1f1b", None),
    "zb-h1": ("zb-h1", None),
    "interleaved-2": ("interleaved", 2),
    "interleaved-4": ("interleaved", 4),
}
STAGES = (2, 3, 4, 6, 8)
MICRO_BATCHES = (1, 2, 4, 8, 12, 16)
BACKWARDS = (1, 2, 3)
SHOWN = ("1f1b", 4, 8, 2)


@cache
def schedules() -> dict[tuple[str, int, int], Schedule]:
    """Return every schedule that the figure has, by kind, stages and micro-batches."""
    found = {}
    for kind, (build, chunks) in KINDS.items():
        for stages in STAGES:
            for micro_batches in MICRO_BATCHES:
                try:
                    schedule = by_name(build, stages, micro_batches, chunks)
                except ScheduleError:
                    continue  # the figure says that there is none
                found[kind, stages, micro_batches] = schedule
    return found


def played(schedule: Schedule, backward: float) -> Timeline:
    """Return when each stage computes; the weights' gradients, where apart, are half a backward."""
    apart = any(isinstance(action, Weight) for stage in schedule for action in stage)
    half = backward / 2
    return simulate(schedule, backward=half if apart else backward, weight=half)


def sends(schedule: Schedule) -> int:
    """Return the messages that stage 0 sends."""
    return sum(len(a.sends) for a in schedule[0] if isinstance(a, Exchange))


def figure(said: dict[str, str], root: Path) -> Figure:
    """Return one schedule, and what a script needs to draw the others."""
    return Figure(_drawn(*SHOWN, said), _data(said))


def _data(said: dict[str, str]) -> dict[str, Any]:
    actions = {
        "/".join(map(str, key)): {
            "stages": [" ".join(map(name, computes(stage))) for stage in schedule],
            "sends": sends(schedule),
        }
        for key, schedule in schedules().items()
    }
    kind, stages, micro_batches, backward = SHOWN
    asked = {
        "stages": (STAGES, stages),
        "microBatches": (MICRO_BATCHES, micro_batches),
        "backward": (BACKWARDS, backward),
    }
    return {
        "schedules": actions,
        "controls": [
            controls.choice("kind", said["kind"], [(one, said[one]) for one in KINDS], kind),
            *(
                controls.slider(key, said[key], [(one, str(one)) for one in values], at)
                for key, (values, at) in asked.items()
            ),
        ],
    }


def _drawn(kind: str, stages: int, micro_batches: int, backward: int, said: dict[str, str]) -> str:
    schedule = schedules()[kind, stages, micro_batches]
    timeline = played(schedule, backward)
    answers = {
        "bubble": quantities.percent(bubble(timeline)),
        "live": f"{peak_live(schedule[0]) / chunks_in(schedule):g}",
        "sends": str(sends(schedule)),
    }
    end = max(span.end for spans in timeline for span in spans)
    digits = len(str(micro_batches - 1))
    return picture(
        "schedule", said, given=answers, timeline=timeline, end=end, digits=digits, name=name
    )
