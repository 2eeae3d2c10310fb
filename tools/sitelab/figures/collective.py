"""The figure of a collective's time: the model's curve, and this machine's measurements."""

import json
from collections.abc import Iterator
from functools import cache
from math import log10
from pathlib import Path
from typing import Any, NamedTuple

from shardlab.proofs.collective import SENT, Call
from shardlab.proofs.formulas.seconds import STEPS, seconds, steps
from sitelab.figures import controls, quantities
from sitelab.figures.shown import Figure, picture

RESULT = "experiments/35-allreduce-costs/results/reference.json"
LINKS = ("gloo", "shared-memory")
# theory 1 cites where these stand in PyTorch: inside a host.
PYTORCH = (6.6, 0.6, round(87.7 * 2**30 / 1e9, 2))  # µs, µs, GB/s
BYTES = (2**10, 2**30)  # the axis, from and to
TIMES = (1e-6, 10.0)
PAYLOADS = [2**power for power in range(10, 31)]
RANKS = [2**power for power in range(1, 11)]
SHOWN = ("all_reduce", 2, 2**18)


class Point(NamedTuple):
    """A measured call: its link, collective, bytes, seconds, and the spread of those."""

    link: str
    op: str
    bytes: int
    seconds: float
    low: float
    high: float


class Constants(NamedTuple):
    """Of a link: µs that any call costs, µs a step, GB/s."""

    base: float
    hop: float
    bandwidth: float


@cache
def measured(root: Path) -> dict[str, dict[str, Any]]:
    """Return the metrics of the committed result, by id; none where there is none."""
    place = root / RESULT
    if not place.is_file():
        return {}  # a workbook of somebody else's
    sections = json.loads(place.read_text("utf-8"))["sections"].values()
    return {metric["id"]: metric for section in sections for metric in section["metrics"]}


def points(root: Path) -> Iterator[Point]:
    """Yield the blocking calls over two ranks."""
    for name, metric in measured(root).items():
        parts = name.split(".")
        if parts[0] == "collective" and parts[3] == "n2" and parts[-1] == "blocking":
            op = parts[2].removesuffix("_recv")  # send_recv is a send
            if parts[1] in LINKS and op in STEPS:
                spread = (metric["low"], metric["high"])
                yield Point(parts[1], op, int(parts[4]), metric["value"], *spread)


def fitted(root: Path, link: str, op: str) -> Constants | None:
    """Return the constants that lab 02 fitted, all latency put into the steps."""
    told = f"fit.{link}.{'send_recv' if op == 'send' else op}.n2."
    latency, bandwidth = (measured(root).get(told + key) for key in ("latency", "bandwidth"))
    if not latency or not bandwidth:
        return None
    share = Call(op, 1 << 20, 2).wire / (1 << 20)
    hop = latency["value"] * 1e6 / steps(op, 2)
    return Constants(0, round(hop, 1), round(bandwidth["value"] * share / 1e9, 2))


def presets(root: Path) -> dict[str, dict[str, Constants]]:
    """Return the constants of each link by collective."""
    known = {"pytorch": dict.fromkeys(STEPS, Constants(*PYTORCH))}
    for link in LINKS:
        found = {op: fitted(root, link, op) for op in STEPS}
        known[link] = {op: constants for op, constants in found.items() if constants}
    return {name: by_op for name, by_op in known.items() if by_op}


def took(constants: Constants, call: Call) -> float:
    """Return the model's seconds."""
    base, hop, bandwidth = constants.base * 1e-6, constants.hop * 1e-6, constants.bandwidth * 1e9
    return seconds(call, base=base, hop=hop, bandwidth=bandwidth)


def figure(said: dict[str, str], root: Path) -> Figure:
    """Return one curve among the measured points, and what a script needs for any other."""
    op, ranks, payload = SHOWN
    known = presets(root)
    preset = "gloo" if "gloo" in known else "pytorch"
    constants = known[preset][op]
    dots = [point for point in points(root) if point.op == op]
    data = {
        "steps": STEPS,
        "wire": {name: SENT[name] for name in STEPS},
        "presets": known,
        "points": list(points(root)),
        "bytes": BYTES,
        "times": TIMES,
        "controls": _controls(constants, preset, list(known), said),
    }
    return Figure(_drawn(constants, Call(op, payload, ranks), dots, preset, said), data)


def _controls(
    constants: Constants, preset: str, known: list[str], said: dict[str, str]
) -> list[Any]:
    op, ranks, payload = SHOWN
    links = [*((name, said[name]) for name in known), ("own", said["own"])]
    bytes_each = [(one, quantities.binary(one)) for one in PAYLOADS]
    return [
        controls.choice("op", said["op"], [(one, said[one]) for one in STEPS], op),
        controls.choice("preset", said["preset"], links, preset),
        controls.slider("ranks", said["ranks"], [(one, str(one)) for one in RANKS], ranks),
        controls.slider("payload", said["payload"], bytes_each, payload),
        controls.number("base", said["base"], constants.base, least=0, step="any"),
        controls.number("hop", said["hop"], constants.hop, least=0, step="any"),
        controls.number("bandwidth", said["bandwidth"], constants.bandwidth, least=0, step="any"),
    ]


def across(payload: float) -> float:
    """Where bytes stand on the axis, in percent."""
    low, high = map(log10, BYTES)
    return 100 * (log10(payload) - low) / (high - low)


def down(taken: float) -> float:
    """Where seconds stand on the other axis, in percent from its top."""
    low, high = map(log10, TIMES)
    return 100 * (high - log10(taken)) / (high - low)


def _whole(taken: float) -> str:
    return quantities.time(taken).replace(".00", "").replace(".0", "")


def _drawn(
    constants: Constants, call: Call, dots: list[Point], preset: str, said: dict[str, str]
) -> str:
    whole = took(constants, call)
    bytes_part = call.wire / (constants.bandwidth * 1e9)
    here = [dot.seconds for dot in dots if dot.link == preset and dot.bytes == call.payload]
    answers = {
        "time": quantities.time(whole),
        "latency": quantities.percent(1 - bytes_part / whole),
        "busbw": f"{quantities.size(call.wire / whole)}/s",
        "measured": quantities.time(here[0]) if here else "–",
    }
    curve = " ".join(
        f"{across(one):.2f},{down(took(constants, call._replace(payload=one))):.2f}"
        for one in PAYLOADS
    )
    return picture(
        "collective", said, shown=call, dots=dots, curve=curve, given=answers, links=LINKS,
        sizes=[(2**power, quantities.binary(2**power)) for power in (10, 15, 20, 25, 30)],
        times=[10.0**power for power in range(-6, 2)], across=across, down=down, whole=_whole,
    )  # fmt: skip
