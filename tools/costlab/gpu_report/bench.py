"""Stage: tools/bench on this machine; its result is this stage's log, ready to be adopted."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from costlab.gpu_report.report import OUT, seconds_left, tell


def main(device: str) -> int:
    """Measure; return the bench's status. What it had measured when its time was over is kept."""
    result = Path(os.environ[OUT], "bench.json")
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "costlab", "all", "--device", device, "--out", str(result)]
    command += ["--minutes", f"{max(1.0, seconds_left(0.8) / 60):.1f}"]
    bench = subprocess.Popen(command)
    try:
        status: int | None = bench.wait(seconds_left(0.95))
    except subprocess.TimeoutExpired:
        bench.terminate()  # it saves what it has
        bench.wait()
        status = None
    words = "its time was over" if status is None else f"status {status}"
    tell("tools/bench", words, ok=None if status is None else status == 0)
    if not result.exists():
        tell("bench.json", "nothing was measured, see the end of the output", ok=False)
        return 1
    result_json = json.loads(result.read_text(encoding="utf-8"))
    by_device: Counter[str] = Counter()
    for name, section in result_json["sections"].items():
        count = len(section["metrics"])
        # Where the processor stands in, one GPU's section has nothing to measure and says so.
        idle = name == "one-gpu" and device == "cpu"
        good = None if idle else count > 0
        tell(name, f"{section['status']}, {count} metrics {section['note']}", ok=good)
        by_device.update(metric.get("device", "") for metric in section["metrics"])
    metrics_there = by_device[device]
    tell(
        f"metrics measured on {device}",
        f"{metrics_there} of {by_device.total()}",
        ok=metrics_there > 0,
    )
    return status or 0
