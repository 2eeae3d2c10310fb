"""Stage: tools/bench on this machine; its result is this stage's log, ready to be adopted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from costlab.gpu_report.rows import seconds_left, tell


def main(device: str) -> int:
    """Measure; return the bench's status. What it had measured when its time was over is kept."""
    result = Path(os.environ["OUT"], "bench.json")
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "costlab", "all", "--device", device, "--out", str(result)]
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
    found = json.loads(result.read_text(encoding="utf-8"))
    devices: dict[str, int] = {}
    for metric in found["metrics"]:
        where = metric.get("device") or "modelled or counted"
        devices[where] = devices.get(where, 0) + 1
    tell("metrics", ", ".join(f"{n} {where}" for where, n in devices.items()), ok=bool(devices))
    missing = "cuda" in device and "cuda" not in devices
    tell("on the device", devices.get(device, 0), ok=not missing)
    return status or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
