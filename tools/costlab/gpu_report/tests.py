"""Stage: the kernels' own tests on the device, as many as the time allows.

It is a plugin of the pytest that it starts: what it has counted stands in the rows, cut off or not.
"""

from collections import Counter
from pathlib import Path

from costlab.gpu_report.report import SKIPPED, seconds_left, tell

ROOT = Path(__file__).parents[3]
SHOWN = 40  # failures, each a row
# The cheapest first, so that a fault shows where it is: an operation before the model that uses it.
ORDER = ("comm", "layers", "data_parallel", "pipeline", "gpt", "fsdp", "training", "oracles")


class Tally:
    """Counts outcomes by folder, and ends the run when its time is over."""

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


def main(device: str) -> int:
    """Run the tests; return 1 if one failed, `SKIPPED` where pytest isn't installed."""
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
