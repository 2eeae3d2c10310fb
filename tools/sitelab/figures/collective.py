"""The figure of a collective's time: the model's curve, and this machine's measurements."""

import json
from collections.abc import Iterator
from functools import cache
from math import log10
from pathlib import Path
from typing import Any, NamedTuple

from shardlab.proofs.collective import SENT, Call
from shardlab.proofs.formulas.seconds import STEPS, seconds, steps
from sitelab.figures import quantities
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


def load_constants(root: Path, link: str, op: str) -> Constants | None:
    """Return the constants that lab 02 fitted; all latency is attributed to the steps."""
    prefix = f"fit.{link}.{'send_recv' if op == 'send' else op}.n2."
    latency, bandwidth = (load_metrics(root).get(prefix + key) for key in ("latency", "bandwidth"))
    if not latency or not bandwidth:
        return None
    share = Call(op, 1 << 20, 2).wire / (1 << 20)
    hop = latency["value"] * 1e6 / steps(op, 2)
    return Constants(0, round(hop, 1), round(bandwidth["value"] * share / 1e9, 2))


def load_presets(root: Path) -> dict[str, dict[str, Constants]]:
    """Return the constants of each link, by collective."""
    by_link = {"pytorch": dict.fromkeys(STEPS, Constants(*PYTORCH))}
    for link in LINKS:
        fitted = {op: load_constants(root, link, op) for op in STEPS}
        by_link[link] = {op: constants for op, constants in fitted.items() if constants}
    return {name: by_op for name, by_op in by_link.items() if by_op}


def predict_seconds(constants: Constants, call: Call) -> float:
    """Return the seconds that the model predicts for a call."""
    base, hop, bandwidth = constants.base * 1e-6, constants.hop * 1e-6, constants.bandwidth * 1e9
    return seconds(call, base=base, hop=hop, bandwidth=bandwidth)


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
    links = [*((name, words[name]) for name in preset_names), ("own", words["own"])]
    bytes_each = [(value, quantities.format_binary(value)) for value in PAYLOADS]
    return [
        make_control("choice", "op", words, op, options=[(name, words[name]) for name in STEPS]),
        make_control("choice", "preset", words, preset, options=links),
        make_control("slider", "ranks", words, ranks, options=[(n, str(n)) for n in RANKS]),
        make_control("slider", "payload", words, payload, options=bytes_each),
        *(
            make_control("number", name, words, value, least=0, step="any")
            for name, value in constants._asdict().items()
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


def _format_axis_seconds(duration: float) -> str:
    return quantities.format_seconds(duration).replace(".00", "").replace(".0", "")


def _render(
    constants: Constants, call: Call, dots: list[Point], preset: str, words: dict[str, str]
) -> str:
    whole = predict_seconds(constants, call)
    bytes_part = call.wire / (constants.bandwidth * 1e9)
    measured_seconds = [
        dot.seconds for dot in dots if dot.link == preset and dot.bytes == call.payload
    ]
    answers = {
        "time": quantities.format_seconds(whole),
        "latency": quantities.format_percent(1 - bytes_part / whole),
        "busbw": f"{quantities.format_bytes(call.wire / whole)}/s",
        "measured": quantities.format_seconds(measured_seconds[0]) if measured_seconds else "–",
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
        sizes=[(2**power, quantities.format_binary(2**power)) for power in (10, 15, 20, 25, 30)],
        times=[10.0**power for power in range(-6, 2)], bytes_to_percent=bytes_to_percent,
        seconds_to_percent=seconds_to_percent, format_seconds=_format_axis_seconds,
    )  # fmt: skip
