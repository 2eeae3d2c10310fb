"""The four stages: what this machine is, the kernels' tests, lab 01 and a GPT in bf16, tools/bench.

Each is run as a process of its own (`python -m costlab.gpu_report STAGE DEVICE`), and tells what it
finds row by row, so that what is cut off keeps its rows.
"""

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from costlab.gpu_report import ranks
from costlab.gpu_report.report import OUT, SKIPPED, seconds_left, tell

ROOT = Path(__file__).parents[3]
NEEDED = {  # module: what goes without it
    "torch": "everything", "numpy": "everything", "msgspec": "bench", "click": "bench",
    "rich": "bench", "pytest": "tests", "hypothesis": "tests", "pytest_timeout": "tests",
    "safetensors": "checkpoints", "megatron.core": "what is measured beside ours, some tests",
    "scipy": "a part of tests",
}  # fmt: skip
SHOWN = 40  # failures, each a row
# The cheapest first, so that a fault shows where it is: an operation before the model that uses it.
ORDER = ("comm", "layers", "data_parallel", "pipeline", "gpt", "fsdp", "training", "oracles")
LAB = ROOT / "experiments" / "35-three-d" / "train.py"
NEAR = 1e-4  # of the losses of one process on the CPU: fp32, eight steps
STEPS = 8
GRIDS: dict[int, tuple[str, ...]] = {
    1: ("",),
    2: (
        "--tp 2", "--tp 2 --sequence-parallel", "--tp 2 --fused", "--pp 2", "--dp 2",
        "--dp 2 --fsdp", "--pp 2 --schedule gpipe",
    ),
    4: ("--tp 2 --pp 2", "--tp 2 --dp 2 --fsdp", "--pp 2 --dp 2", "--tp 4 --sequence-parallel"),
    8: ("--tp 2 --pp 2 --dp 2", "--tp 8", "--dp 8 --fsdp", "--pp 4 --dp 2"),
}  # fmt: skip


def run_probe(device: str) -> int:
    """Tell what this machine is; fail where torch, or the device that is asked for, isn't."""
    for module, lost in NEEDED.items():
        try:
            imported = importlib.import_module(module)
        except Exception as error:  # a broken build raises anything
            why = f"{type(error).__name__}: {error}; without it: {lost}"
            tell(module, why, ok=False if lost == "everything" else None)
        else:
            tell(module, getattr(imported, "__version__", "there"), ok=True)
    if "torch" not in sys.modules:
        return 1
    import torch

    subprocess.run([sys.executable, "-m", "torch.utils.collect_env"], check=False, timeout=60)
    there = torch.cuda.is_available()
    tell("device asked for", device, ok=there or device == "cpu")
    for index in range(torch.cuda.device_count()) if there else ():
        x = torch.randn(512, 512, device=f"cuda:{index}")
        worst = float((x @ x - (x.cpu().double() @ x.cpu().double()).to(x)).abs().max())
        name = torch.cuda.get_device_name(index)
        tell(f"GPU {index}: a product", f"{name}: {worst:.1e} from the CPU's", ok=worst < 1e-1)
    return 0


class Tally:
    """A plugin of pytest: counts outcomes by folder, and ends the run when its time is over."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.failures = 0
        self.collected = 0

    def pytest_collection_finish(self, session: object) -> None:
        """Learn how many there are."""
        self.collected = len(session.items)  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: object) -> None:
        """Count a test once: by its call, or by the part that failed or was skipped."""
        outcome, when = report.outcome, report.when  # type: ignore[attr-defined]
        if when != "call" and outcome == "passed":
            return
        name = str(report.nodeid)  # type: ignore[attr-defined]
        self.outcomes.setdefault(name.split("/")[2], Counter())[outcome] += 1
        if outcome == "failed":
            self.failures += 1
            if self.failures <= SHOWN:
                tell(name.removeprefix("tests/shardlab/"), _cause(report), ok=False)

    def pytest_runtest_setup(self, item: object) -> None:
        """End in good time, so that what was counted is told."""
        if seconds_left(0.93) < 0:
            item.session.shouldstop = "the stage's time is over"  # type: ignore[attr-defined]

    def print_summary(self) -> None:
        """Tell what became of each folder's tests."""
        for folder, outcome in self.outcomes.items():
            words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcome.items()))
            tell(folder, words, ok=not outcome["failed"])
        ran = sum(outcome.total() for outcome in self.outcomes.values())
        tell("in all", f"{ran} of {self.collected} ran, {self.failures} failed", ok=ran > 0)


def _cause(report: object) -> str:
    """Return the line of a traceback that says most."""
    lines = str(report.longrepr).splitlines()  # type: ignore[attr-defined]
    errors = [line for line in lines if "Error" in line or line.startswith("E  ")]
    return (errors or lines or ["(no words)"])[-1].strip()


def run_tests(device: str) -> int:
    """Run the kernels' own tests, as many as the time allows; return 1 if one failed.

    Where pytest isn't installed, return `SKIPPED`.
    """
    try:
        import pytest
    except ImportError:
        tell("pytest", "it isn't installed: `--wheels` brings it")
        return SKIPPED
    tally = Tally()
    folders = [f"tests/shardlab/{folder}" for folder in ORDER]
    options = ["--device", device, "-p", "no:cacheprovider", "-q", "--tb=short", "--no-header"]
    options += ["--rootdir", str(ROOT), "-m", "not benchmark and not ci"]
    pytest.main([*folders, *options], plugins=[tally])
    tally.print_summary()
    return int(tally.failures > 0 or not tally.outcomes)


def run_train(device: str) -> None:
    """Time the GPT; train lab 01 on every grid of the ranks there are, beside one CPU process."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "losses")
        reference = losses(1, ["--cpu"], file)
        if not reference:
            return
        # The timing first: it is what a GPU is borrowed for.
        throughput(device)
        footprints(device)
        for count, shared in ranks.counts(device):
            for grid in GRIDS.get(count, ()):
                if seconds_left(0.9) < 30:
                    tell("the rest of the grids", "not tried: no time left")
                    return
                place = ["--cpu"] if device == "cpu" else ["--share-gpus"] * shared
                losses_of_run = losses(count, [*grid.split(), *place], file)
                compare(f"{count} ranks {grid}" + " on one GPU" * shared, losses_of_run, reference)


def losses(count: int, options: list[str], file: Path) -> list[float]:
    """Train; return each step's loss, or nothing, and the reason told."""
    file.unlink(missing_ok=True)
    command = [str(LAB), "--steps", str(STEPS), "--losses", str(file), *options]
    ended = ranks.run(count, command, limit=min(120.0, seconds_left(0.95)))
    if ranks.fault(f"{count} ranks {' '.join(options)}", ended):
        return []
    return [float(line) for line in file.read_text(encoding="utf-8").split()]


def compare(name: str, losses_of_run: list[float], reference: list[float]) -> None:
    """Tell how far a grid's losses are from those of one process on the CPU."""
    if losses_of_run:
        worst = max(abs(a - b) for a, b in zip(losses_of_run, reference, strict=True))
        seen = f"loss {losses_of_run[0]:.4f} to {losses_of_run[-1]:.4f}, "
        seen += f"{worst:.1e} from one process on the CPU"
        tell(name, seen, ok=worst < NEAR)


def throughput(device: str) -> None:
    """Time the GPT in bf16 on one device, in a process of its own, which may run out of memory."""
    for more in ([], ["--fused"]):
        command = ["-m", "costlab.gpu_report", "throughput", device, *more]
        (ended,) = ranks.run(1, command, limit=min(150.0, seconds_left(0.6)))
        print(ended.output[-4000:], ended.stacks[:6000], sep="\n")
        good = ended.status == 0
        tell(f"GPT in bf16 {' '.join(more)}".strip(), ended.last, ok=good)


def footprints(device: str) -> None:
    """Tell what steps hold in memory, in a process of its own, which may run out of it."""
    command = ["-m", "costlab.gpu_report", "footprints", device]
    ranks.fault("memory", ranks.run(1, command, limit=min(60.0, seconds_left(0.7))))


def run_bench(device: str) -> int:
    """Run tools/bench, whose result can be adopted; return its status.

    What it had measured when its time was over is kept.
    """
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
