"""How a number is written, the same in every language; and whose it is: its code, link and device.

What a note quotes must equal its row to the letter, in both languages: so a point is a point, units
are symbols, and one function writes every value.

An id ends with whose code it is and over which link: `fsdp.h128.step.torch-fsdp1.gloo` is a step of
PyTorch's FSDP1 over gloo, `fsdp.h128.ratio.shardlab.torch-ddp.gloo` how many of DDP's steps one of
ours takes. A collective's link says whose it is: over gloo and NCCL they are torch's own functions,
over shared memory ours. The device stands on the metric, since one id is measured on either.
"""

import math
from typing import NamedTuple

from costlab.record.result import Metric
from costlab.record.words import words

_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_RATES = (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0))
_COUNTS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_SIZES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


def format_metric(metric: Metric) -> str:
    """Return a metric's value with its unit: "1.24 ms", "0.81×", "37 %", "2"."""
    return format_value(metric.value, metric.unit)


def format_value(value: float, unit: str) -> str:
    """Return a value of a unit: seconds, bytes and rates scaled, others as they are."""
    if unit in ("ratio", "share"):
        return per_cent(value) if unit == "share" else f"{_digits(value)}×"
    scale = {"s": _TIMES, "B/s": _RATES, "B": _SIZES, "parameters": _COUNTS}.get(unit)
    if scale is None:
        plain = f"{value:,.0f}" if value == int(value) else _digits(value)
        return plain if unit in ("count", "", "hidden") else f"{plain} {unit}"
    name, size = next((step for step in scale if abs(value) >= step[1] * 0.9995), scale[-1])
    return f"{_digits(value / size)} {name}".strip()


def spread(metric: Metric) -> str:
    """Return "low – high", or nothing where a metric has no spread."""
    if metric.low is None or metric.high is None:
        return ""
    return f"{format_value(metric.low, metric.unit)} – {format_value(metric.high, metric.unit)}"


def count(metric: Metric) -> str:
    """Return how many observations a metric stands on, and of how many launches: "660 / 5".

    A dash where there are none: what is counted or modelled is so each time.
    """
    if metric.how in ("counted", "modelled") or (metric.how == "derived" and metric.low is None):
        return "–"
    launches = metric.detail.get("launches")
    return f"{metric.samples:,} / {launches}" if launches else f"{metric.samples:,}"


def per_cent(value: float) -> str:
    """Return a share as per cent, with a place more where it is small."""
    places = 0 if abs(value) >= 0.0995 or value == 0 else 1
    return f"{value * 100:.{places}f} %"


def _digits(value: float) -> str:
    """Return two or three significant digits, no exponent; an integer without a point."""
    size = abs(value)
    # 1e-5 / 1e-6 is 10 on some processors and 10.000000000000002 on others.
    if math.isclose(value, round(value), rel_tol=1e-9) or size >= 99.95:
        return f"{value:,.0f}"
    places = 1 if size >= 9.995 else 2
    while size < 0.0995 and places < 8:
        size, places = size * 10, places + 1
    return f"{value:.{places}f}"


DEVICES = {"cpu": "CPU", "cuda": "GPU"}
_TORCHS_OWN = ("gloo", "nccl")
_BY_LINK = ("collective", "fit")

# Beside each number: whose it is, in the order of `Whose`.
OWNERS = (words("whose.code"), words("whose.link"), words("whose.on"))


class Attribution(NamedTuple):
    """Whose a number is; what doesn't apply is empty.

    Attributes:
        code: "shardlab", or of a ratio "shardlab / torch-ddp".
        link: "gloo", "shared-memory", "nccl" ….
        device: "CPU" or "GPU".
    """

    code: str
    link: str
    device: str

    def __str__(self) -> str:
        """One after another: "shardlab, gloo, CPU"."""
        return ", ".join(part for part in self if part)


def attribute(metric: Metric) -> Attribution:
    """Return whose a metric is; what was counted alike on every machine has no device."""
    name = metric.name
    if name.topic == "count":  # the same on every machine
        return Attribution("", "", "")
    code = f"{name.code} / {name.over}" if name.over else name.code
    if name.topic in _BY_LINK:
        code = "torch" if name.link in _TORCHS_OWN else "shardlab"
    elif name.topic == "gpu" or name.what == "sweep":  # products alone; a step's calls alone
        code = "torch"
    return Attribution(code, name.link, DEVICES.get(metric.device, metric.device))
