"""The figure of a collective's time: the model's curve, and this machine's measurements."""

import json
from collections.abc import Iterator
from functools import cache
from math import log10
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardlab.proofs.collective import SENT, Call
from shardlab.proofs.formulas.seconds import STEPS, seconds, steps
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template

RESULT = "experiments/35-allreduce-costs/results/reference.json"
LINKS = ("gloo", "shared-memory")
# Theory 1 cites PyTorch's lines with these constants, for a link inside a host.
PYTORCH = (6.6, 0.6, round(87.7 * 2**30 / 1e9, 2))  # µs, µs, GB/s
BYTES = (2**10, 2**30)  # the axis, from and to
TIMES = (1e-6, 10.0)
PAYLOADS = [2**power for power in range(10, 31)]
RANKS = [2**power for power in range(1, 11)]
INITIAL = ("all_reduce", 2, 2**18)
# What may be typed: µs, µs and GB/s. No link carries 0 bytes a second.
LEAST, MOST = (0, 0, 0.001), 1e6
LEAST_POINTS, FIT_ROUNDS = 4, 20


class Point(NamedTuple):
    """A measured call: its link, collective, bytes and seconds, and the spread of the seconds."""

    link: str
    op: str
    bytes: int
    seconds: float
    low: float
    high: float


class Constants(NamedTuple):
    """The constants of a link: µs for each call, µs for each step, GB/s."""

    base: float
    hop: float
    bandwidth: float


@cache
def load_metrics(root: Path) -> dict[str, dict[str, Any]]:
    """Return the metrics of the committed result by id, or {} if there is no such result."""
    file = root / RESULT
    if not file.is_file():
        return {}  # another workbook, built with these tools
    sections = json.loads(file.read_text("utf-8"))["sections"].values()
    return {metric["id"]: metric for section in sections for metric in section["metrics"]}


def load_points(root: Path) -> Iterator[Point]:
    """Yield the measured blocking calls over two ranks."""
    for name, metric in load_metrics(root).items():
        parts = name.split(".")
        if parts[0] == "collective" and parts[3] == "n2" and parts[-1] == "blocking":
            op = parts[2].removesuffix("_recv")  # send_recv is a send
            if parts[1] in LINKS and op in STEPS:
                spread = (metric["low"], metric["high"])
                yield Point(parts[1], op, int(parts[4]), metric["value"], *spread)


def fit_constants(points: list[Point]) -> Constants:
    """Return the constants by which the formula is least off the points of one collective.

    What is made least is the sum of the squares of log(formula / measured), so that half of a time
    counts as much as twice the time. All latency is attributed to the steps. The method is
    Gauss and Newton's, for the logarithms of both constants, which keeps them positive.
    """
    seconds_each, sizes = np.array([(point.seconds, point.bytes) for point in points]).T
    largest = sizes.argmax()
    logs = np.log([seconds_each.min(), seconds_each[largest] / sizes[largest]])
    for _ in range(FIT_ROUNDS):
        latency, per_byte = np.exp(logs)
        models = latency + per_byte * sizes
        # How much of a model's time is latency, and how much bytes: its slopes, in logarithms.
        slopes = np.stack([latency / models, per_byte * sizes / models], axis=1)
        logs -= np.linalg.lstsq(slopes, np.log(models / seconds_each), rcond=None)[0]
    latency, per_byte = np.exp(logs)
    call = Call(points[0].op, 1 << 20, 2)
    hop, bandwidth = latency * 1e6 / steps(call.op, 2), call.wire / call.payload / per_byte / 1e9
    return Constants(0, float(f"{hop:.3g}"), float(f"{bandwidth:.3g}"))


def load_presets(root: Path) -> dict[str, dict[str, Constants]]:
    """Return the constants of each link, by collective."""
    measured: dict[str, dict[str, list[Point]]] = {link: {} for link in LINKS}
    for point in load_points(root):
        measured[point.link].setdefault(point.op, []).append(point)
    by_link = {"pytorch": dict.fromkeys(STEPS, Constants(*PYTORCH))}
    for link, by_op in measured.items():
        enough = {op: points for op, points in by_op.items() if len(points) >= LEAST_POINTS}
        by_link[link] = {op: fit_constants(points) for op, points in enough.items()}
    return {name: by_op for name, by_op in by_link.items() if by_op}


def predict_seconds(constants: Constants, call: Call) -> float:
    """Return the seconds that the model predicts for a call."""
    base, hop, bandwidth = constants.base * 1e-6, constants.hop * 1e-6, constants.bandwidth * 1e9
    return seconds(call, base=base, hop=hop, bandwidth=bandwidth)


def format_farthest(constants: Constants, points: list[Point]) -> str:
    """Return how many times a point is the formula's time, or the reverse, where most: 1.28 ×."""
    ratios = [
        predict_seconds(constants, Call(point.op, point.bytes, 2)) / point.seconds
        for point in points
    ]
    return f"{max(max(ratio, 1 / ratio) for ratio in ratios):.2f} ×" if ratios else "–"


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return one curve with the measured points, and the data for drawing any other curve."""
    op, ranks, payload = INITIAL
    all_presets = load_presets(root)
    preset = "gloo" if "gloo" in all_presets else "pytorch"
    constants = all_presets[preset][op]
    dots = [point for point in load_points(root) if point.op == op]
    data = {
        "steps": STEPS,
        "wire": {name: SENT[name] for name in STEPS},
        "presets": all_presets,
        "points": list(load_points(root)),
        "bytes": BYTES,
        "times": TIMES,
        "controls": _make_controls(constants, preset, list(all_presets), words),
    }
    return Figure(_render(constants, Call(op, payload, ranks), dots, preset, words), data)


def _make_controls(
    constants: Constants, preset: str, preset_names: list[str], words: dict[str, str]
) -> list[Any]:
    op, ranks, payload = INITIAL
    bytes_each = [(value, embed.format_binary(value)) for value in PAYLOADS]
    return [
        make_control("choice", "op", words, op, STEPS),
        make_control("choice", "preset", words, preset, [*preset_names, "own"]),
        make_control("slider", "ranks", words, ranks, RANKS),
        make_control("slider", "payload", words, payload, options=bytes_each),
        *(
            make_control("number", name, words, value, step="any", least=least, most=MOST)
            for (name, value), least in zip(constants._asdict().items(), LEAST, strict=True)
        ),
    ]


def bytes_to_percent(payload: float) -> float:
    """Return the position of a payload on the horizontal axis, in percent."""
    low, high = map(log10, BYTES)
    return 100 * (log10(payload) - low) / (high - low)


def seconds_to_percent(duration: float) -> float:
    """Return the position of a duration on the vertical axis, in percent from the top."""
    low, high = map(log10, TIMES)
    return 100 * (high - log10(duration)) / (high - low)


def _render(
    constants: Constants, call: Call, dots: list[Point], preset: str, words: dict[str, str]
) -> str:
    whole = predict_seconds(constants, call)
    bytes_part = call.wire / (constants.bandwidth * 1e9)
    measured_seconds = [
        dot.seconds for dot in dots if dot.link == preset and dot.bytes == call.payload
    ]
    answers = {
        "time": embed.format_seconds(whole),
        "latency": embed.format_percent(1 - bytes_part / whole),
        "busbw": f"{embed.format_bytes(call.wire / whole)}/s",
        "measured": embed.format_seconds(measured_seconds[0]) if measured_seconds else "–",
        "farthest": format_farthest(constants, [dot for dot in dots if dot.link == preset]),
    }
    seconds_by_size = {
        size: predict_seconds(constants, call._replace(payload=size)) for size in PAYLOADS
    }
    curve = " ".join(
        f"{bytes_to_percent(size):.2f},{seconds_to_percent(seconds_by_size[size]):.2f}"
        for size in PAYLOADS
    )
    return render_template(
        "collective", words, shown=call, dots=dots, curve=curve, values=answers, links=LINKS,
        sizes=[(2**power, embed.format_binary(2**power)) for power in (10, 15, 20, 25, 30)],
        times=[10.0**power for power in range(-6, 2)], bytes_to_percent=bytes_to_percent,
        seconds_to_percent=seconds_to_percent,
        format_seconds=lambda time: embed.drop_zeros(embed.format_seconds(time)),
    )  # fmt: skip
