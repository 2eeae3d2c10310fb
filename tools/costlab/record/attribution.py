"""Whose number it is: the code that a metric's id names, the link it ran over, and the device.

An id ends with whose code it is and over which link: `fsdp.h128.step.torch-fsdp1.gloo` is a step of
PyTorch's FSDP1 over gloo, `fsdp.h128.ratio.shardlab.torch-ddp.gloo` how many of DDP's steps one of
ours takes. A collective's link says whose it is: over gloo and NCCL they are torch's own functions,
over shared memory ours. The device stands on the metric, since one id is measured on either.
"""

from typing import NamedTuple

from costlab.record.result import Metric
from costlab.record.words import words

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
