"""The figure of a pipeline's schedule: shardlab's own lists of actions, played against a clock."""

from functools import cache
from html import escape
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
from sitelab.figures.shown import Figure

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
    each = {n: [(value, str(value)) for value in values] for n, values in _SLIDERS.items()}
    return {
        "schedules": actions,
        "controls": [
            controls.choice("kind", said["kind"], [(one, said[one]) for one in KINDS], kind),
            controls.slider("stages", said["stages"], each["stages"], stages),
            controls.slider("microBatches", said["microBatches"], each["micro"], micro_batches),
            controls.slider("backward", said["backward"], each["backward"], backward),
        ],
    }


_SLIDERS = {"stages": STAGES, "micro": MICRO_BATCHES, "backward": BACKWARDS}


def _drawn(kind: str, stages: int, micro_batches: int, backward: int, said: dict[str, str]) -> str:
    schedule = schedules()[kind, stages, micro_batches]
    timeline = played(schedule, backward)
    end = max(span.end for spans in timeline for span in spans)
    chunks = chunks_in(schedule)
    tracks = []
    for stage, spans in enumerate(timeline):
        boxes = "".join(
            f'<span class="play-box play-{name(span.action)[0].lower()}" '
            f'data-chunk="{span.action.chunk}" style="left:{100 * span.start / end:.4f}%;'
            f'width:{100 * (span.end - span.start) / end:.4f}%">'
            f"<i>{span.action.microbatch}</i></span>"
            for span in spans
        )
        track = f'<span class="play-track">{boxes}</span>'
        tracks.append(f'<span class="play-stage">{stage}</span>{track}')
    answers = {
        "bubble": quantities.percent(bubble(timeline)),
        "live": f"{peak_live(schedule[0]) / chunks:g}",
        "sends": str(sends(schedule)),
    }
    told = "".join(
        f'<li>{escape(said[key])} <strong data-answer="{key}">{value}</strong></li>'
        for key, value in answers.items()
    )
    legend = "".join(
        f'<li><span class="play-key play-{key}"></span>{escape(said[f"key-{key}"])}</li>'
        for key in ("f", "b", "w", "idle")
    )
    return (
        f'<div role="status"><ul class="play-answers">{told}</ul></div>'
        f'<p class="play-warning" role="status" hidden>{escape(said["none"])}</p>'
        f'<div class="play-scroll" tabindex="0" role="img" aria-label="{escape(said["picture"])}">'
        f'<div class="play-tracks" style="--units:{end:g}">{"".join(tracks)}</div></div>'
        f'<ul class="play-legend">{legend}</ul>'
    )
