"""The stages of a report, in order of what one would miss first."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage: a process of its own.

    Attributes:
        name: also of its log.
        says: what it tries.
        limit: seconds.
        log: its file in the report's folder.
    """

    name: str
    says: str
    limit: int
    log: str = ""

    @property
    def file(self) -> str:
        """The name of its log."""
        return self.log or f"{self.name}.log"

    def command(self, device: str) -> list[str]:
        """Return what to start."""
        return [sys.executable, "-m", f"costlab.gpu_report.{self.name}", device]


STAGES = (
    Stage("probe", "driver, torch, NCCL, clocks, topology, what can't be imported", 90),
    Stage("smoke", "every collective, dtype and size against sums of the CPU; a killed rank", 240),
    Stage("tests", "the kernels' own tests", 390),
    Stage("train", "lab 01's losses on every grid; a GPT in bf16: tokens/s, MFU, memory", 330),
    Stage("bench", "tools/bench, quick", 420, log="bench.json"),
    Stage("matrix", "torch.compile, autocast and checkpointing, alone and together", 210),
)
