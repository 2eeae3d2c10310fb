"""The stages of a report, in order of what one would miss first."""

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage: a process of its own.

    Attributes:
        name: also of its log.
        says: what it tries.
        limit: seconds.
        logged: whether its output is kept in a file, beside what the report says of it.
    """

    name: str
    says: str
    limit: int
    logged: bool = True

    def command(self, device: str) -> list[str]:
        """Return what to start."""
        return [sys.executable, "-m", "costlab.gpu_report", self.name, device]


STAGES = (
    # Its output stands in the report.
    Stage(
        "probe", "driver, torch, NCCL, clocks, topology, what can't be imported", 90, logged=False
    ),
    Stage("smoke", "every collective, dtype and size against sums of the CPU; a killed rank", 240),
    Stage("tests", "the kernels' own tests", 390),
    Stage("train", "lab 01's losses on every grid; a GPT in bf16: tokens/s, MFU, memory", 330),
    # It leaves bench.json, and its samples.
    Stage("bench", "tools/bench, quick", 420, logged=False),
    Stage("matrix", "torch.compile, autocast and checkpointing, alone and together", 210),
)
