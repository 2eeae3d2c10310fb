"""The figure of a rank's memory over two steps: what each forward adds and each backward frees.

The bytes are those of `costlab.layouts.memory`, the order and the times those of stage 0
of shardlab's 1F1B. Adam's moments exist from the first update on. Gradients appear during the first
backward of a step; they are freed after the update or kept, as Megatron keeps its buffer.
"""

from functools import cache
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, NamedTuple

from costlab.layouts import memory
from costlab.layouts.model import Plan
from shardlab.pipeline.action import Forward
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import simulate
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template
from sitelab.figures.memory import load_presets, read_plan

KINDS = ("weight", "gradient", "optimizer", "activation")  # activations with logits and buffers
NAMES = ("tutor", "22B", "Llama 3 8B", "175B")
MICRO_BATCHES = (1, 2, 4, 8, 16)
INITIAL = ("22B", 2, "selective", False)  # model, micro-batches, recomputation, keeps gradients
MOMENTS = 8  # bytes of a parameter: two numbers in fp32
BACKWARD = {"none": 2, "selective": 2, "full": 3}  # how long, in forwards
UPDATE = 1.0  # how long the optimizer is drawn, in forwards
STACKED = ("weight", "optimizer", "gradient", "activation")  # from below
HEADROOM = 1.08  # for what is written above a peak


class Bytes(NamedTuple):
    """What a rank holds: always, from the first update on, at the end of backward, …

    Attributes:
        weight: of the weights.
        master: of the optimizer's own copy of the weights, which is there from the start.
        moments: of Adam's moments.
        gradient: of all gradients.
        stored: activations and logits that a forward of one micro-batch leaves for its backward.
        recomputed: buffers of backward, with the activations of a layer that it makes again.
    """

    weight: float
    master: float
    moments: float
    gradient: float
    stored: float
    recomputed: float


class Span(NamedTuple):
    """What runs: F or B of a micro-batch, or U, the update; from `start` to `end` of a step."""

    kind: str
    microbatch: int
    start: float
    end: float


class Point(NamedTuple):
    """The bytes of each kind, in the order of `KINDS`, at one time."""

    time: float
    bytes: tuple[float, float, float, float]


def count_bytes(name: str, recompute: str) -> Bytes:
    """Return the bytes of a model's rank on stage 0."""
    held, plan = count_kinds(name, 1, recompute)
    moments = held["optimizer"] * MOMENTS / plan.optimizer
    stored = held["activations"] + held["logits"]
    master = held["optimizer"] - moments
    return Bytes(held["weights"], master, moments, held["gradients"], stored, held["buffers"])


def count_kinds(name: str, micro_batches: int, recompute: str) -> tuple[dict[str, float], Plan]:
    """Return what stage 0 holds of each kind, and the plan."""
    settings = {"recompute": recompute, "micro_batches": micro_batches}
    model, plan = read_plan(load_presets()[name] | settings)
    return memory.rank_bytes(model, plan, 0), plan


@cache
def list_spans(stages: int, micro_batches: int, backward: int) -> list[Span]:
    """Return what stage 0 runs in a step of 1F1B, and the update."""
    schedule = by_name("1f1b", stages, micro_batches)
    spans = [
        Span(
            "F" if isinstance(ran.action, Forward) else "B",
            ran.action.microbatch,
            ran.start,
            ran.end,
        )
        for ran in simulate(schedule, backward=backward)[0]
    ]
    return [*spans, Span("U", 0, spans[-1].end, spans[-1].end + UPDATE)]


def trace(parts: Bytes, spans: list[Span], keeps: bool) -> list[tuple[Span, list[Point]]]:
    """Return the spans of both steps, each with the memory before it, at its ends and after it.

    Within a span, memory changes in straight lines.
    """
    traced = []
    activations, moments, gradient = 0.0, 0.0, parts.gradient if keeps else 0.0

    def take(time: float, extra: float = 0) -> Point:
        return Point(time, (parts.weight, gradient, parts.master + moments, activations + extra))

    for begin in (0.0, spans[-1].end):
        for kind, microbatch, start, end in spans:
            again = parts.recomputed if kind == "B" else 0
            points = [take(begin + start)]
            moments = parts.moments if kind == "U" else moments
            points.append(take(begin + start, again))
            activations += {"F": parts.stored, "B": -parts.stored, "U": 0}[kind]
            gradient = parts.gradient if kind == "B" else gradient
            points += [take(begin + end, again), take(begin + end)]
            traced.append((Span(kind, microbatch, begin + start, begin + end), points))
        gradient = parts.gradient if keeps else 0.0
    return traced


def find_peak(points: list[Point]) -> Point:
    """Return the first point at which most is held."""
    return max(points, key=lambda point: round(sum(point.bytes)))


def make_trace(
    name: str, micro_batches: int, recompute: str, keeps: bool
) -> list[tuple[Span, list[Point]]]:
    """Return the memory of a model under the figure's settings."""
    spans = list_spans(load_presets()[name]["stages"], micro_batches, BACKWARD[recompute])
    return trace(count_bytes(name, recompute), spans, keeps)


def choose_axis(most: float) -> list[float]:
    """Return the ticks of an axis with room for `most`: three to five steps of 1, 2 or 5."""
    power = 10.0 ** floor(log10(most / 4))
    step = next(factor * power for factor in (1, 2, 5, 10) if most * HEADROOM / factor / power <= 5)
    return [step * number for number in range(ceil(most * HEADROOM / step) + 1)]


def describe_span(span: Span, peak: Point, words: dict[str, str]) -> str:
    """Return a sentence about a span: what runs, and the most that is held meanwhile."""
    values = dict(zip(KINDS, map(embed.format_bytes, peak.bytes), strict=True))
    return words[f"during-{span.kind}"].format(
        number=span.microbatch, whole=embed.format_bytes(sum(peak.bytes)), **values
    )


def answer(traced: list[tuple[Span, list[Point]]], account: float) -> dict[str, str]:
    """Return the peaks of both steps, and the sum of theory 8's account."""
    half = len(traced) // 2
    peaks = [
        find_peak([point for _, points in spans for point in points])
        for spans in (traced[:half], traced[half:])
    ]
    bytes_by_key = {"first": sum(peaks[0].bytes), "second": sum(peaks[1].bytes), "account": account}
    return {key: embed.format_bytes(value) for key, value in bytes_by_key.items()}


def count_account(name: str, micro_batches: int, recompute: str) -> float:
    """Return the sum of theory 8's account, which adds the most of every kind."""
    return sum(count_kinds(name, micro_batches, recompute)[0].values())


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return two steps of one model, and the data for the others."""
    traced = make_trace(*INITIAL)
    every = [point for _, points in traced for point in points]
    peak = find_peak(every)
    moment = next(number for number, (_, points) in enumerate(traced) if peak in points)
    ticks = choose_axis(sum(peak.bytes))
    half, end = len(traced) // 2, traced[-1][0].end
    steps = [[p for _, ps in part for p in ps] for part in (traced[:half], traced[half:])]
    html = render_template(
        "memory-step", words, spans=[span for span, _ in traced], end=end, ticks=ticks,
        areas={kind: draw_area(every, kind, end, ticks[-1]) for kind in STACKED},
        peaks=[sum(find_peak(points).bytes) for points in steps], now=peak.time,
        sums=dict(zip(KINDS, peak.bytes, strict=True)), size=embed.format_bytes,
        tick=lambda number: embed.drop_zeros(embed.format_bytes(number)),
        values=answer(traced, count_account(*INITIAL[:3])),
        text=describe_span(traced[moment][0], peak, words),
    )  # fmt: skip
    return Figure(html, _collect_data(moment, words))


def draw_area(points: list[Point], kind: str, end: float, top: float) -> str:
    """Return the outline of a kind's area, which lies on those of the kinds before it."""
    below = [KINDS.index(name) for name in STACKED[: STACKED.index(kind)]]
    place = KINDS.index(kind)
    lows = [(point.time, sum(point.bytes[index] for index in below)) for point in points]
    highs = [(t, low + p.bytes[place]) for (t, low), p in zip(lows, points, strict=True)]
    corners = [*highs, *reversed(lows)]
    return " ".join(f"{100 * t / end:.3f},{100 - 100 * y / top:.3f}" for t, y in corners)


def _collect_data(moment: int, words: dict[str, str]) -> dict[str, Any]:
    name, micro_batches, recompute, keeps = INITIAL
    return {
        "stages": {model: load_presets()[model]["stages"] for model in NAMES},
        "bytes": {
            f"{model}/{option}": count_bytes(model, option)._asdict()
            for model in NAMES
            for option in BACKWARD
        },
        "backward": BACKWARD,
        "spans": {
            f"{stages}/{count}/{backward}": list_spans(stages, count, backward)
            for stages in {load_presets()[model]["stages"] for model in NAMES}
            for count in MICRO_BATCHES
            for backward in set(BACKWARD.values())
        },
        "moment": moment,
        "controls": [
            make_control("choice", "model", words, name, NAMES),
            make_control("slider", "microBatches", words, micro_batches, MICRO_BATCHES),
            make_control("choice", "recompute", words, recompute, BACKWARD),
            make_control("tick", "keeps", words, keeps),
        ],
    }
