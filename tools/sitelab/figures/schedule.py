"""The figure of a pipeline's schedule: shardlab's own lists of actions, simulated on a clock."""

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
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template

# The arguments of `by_name`: the kind, and the chunks of a stage.
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
INITIAL = ("1f1b", 4, 8, 2)


@cache
def build_schedules() -> dict[tuple[str, int, int], Schedule]:
    """Return every schedule of the figure, by kind, stages and micro-batches."""
    by_settings = {}
    for kind, (build, chunks) in KINDS.items():
        for stages in STAGES:
            for micro_batches in MICRO_BATCHES:
                try:
                    schedule = by_name(build, stages, micro_batches, chunks)
                except ScheduleError:
                    continue  # the figure says that no such schedule exists
                by_settings[kind, stages, micro_batches] = schedule
    return by_settings


def simulate_schedule(schedule: Schedule, backward: float) -> Timeline:
    """Return when each stage computes; a separate weight gradient takes half a backward."""
    splits_backward = any(isinstance(action, Weight) for stage in schedule for action in stage)
    half = backward / 2
    return simulate(schedule, backward=half if splits_backward else backward, weight=half)


def count_sends(schedule: Schedule) -> int:
    """Return the number of messages that stage 0 sends."""
    return sum(len(a.sends) for a in schedule[0] if isinstance(a, Exchange))


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return one schedule, and the data for drawing the others."""
    return Figure(_render(*INITIAL, words), _collect_data(words))


def compare_schedules(
    kinds: tuple[str, str], micro_batches: int, backward: int, words: dict[str, str], root: Path
) -> Figure:
    """Return two schedules of four stages, one below the other, without controls."""
    schedules = []
    for kind in kinds:
        schedule = by_name(KINDS[kind][0], INITIAL[1], micro_batches)
        timeline = simulate_schedule(schedule, backward)
        end = max(span.end for spans in timeline for span in spans)
        schedules.append((words[kind], timeline, end))
    most = max(end for *_, end in schedules)
    colours = ("f", "b", *(("w",) if "zb-h1" in kinds else ()), "idle")
    return Figure(render_template(
        "schedules", words, schedules=schedules, most=most, colours=colours, name=name
    ))  # fmt: skip


def _collect_data(words: dict[str, str]) -> dict[str, Any]:
    actions = {
        "/".join(map(str, key)): {
            "stages": [" ".join(map(name, computes(stage))) for stage in schedule],
            "sends": count_sends(schedule),
        }
        for key, schedule in build_schedules().items()
    }
    kind, stages, micro_batches, backward = INITIAL
    return {
        "schedules": actions,
        "controls": [
            make_control("choice", "kind", words, kind, KINDS),
            make_control("slider", "stages", words, stages, STAGES),
            make_control("slider", "microBatches", words, micro_batches, MICRO_BATCHES),
            make_control("slider", "backward", words, backward, BACKWARDS),
        ],
    }


def _render(
    kind: str, stages: int, micro_batches: int, backward: int, words: dict[str, str]
) -> str:
    schedule = build_schedules()[kind, stages, micro_batches]
    timeline = simulate_schedule(schedule, backward)
    answers = {
        "bubble": embed.format_percent(bubble(timeline)),
        "live": f"{peak_live(schedule[0]) / chunks_in(schedule):g}",
        "sends": str(count_sends(schedule)),
    }
    end = max(span.end for spans in timeline for span in spans)
    digits = len(str(micro_batches - 1))
    return render_template(
        "schedule", words, values=answers, timeline=timeline, end=end, digits=digits, name=name
    )
