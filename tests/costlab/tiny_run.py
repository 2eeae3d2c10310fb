"""One real run of the counts, shared by the tests of judging and publishing."""

from __future__ import annotations

from functools import cache
from importlib.metadata import files
from pathlib import Path

from costlab.record.options import Settings
from costlab.record.result import Metric, Result, Section, save
from costlab.run import launch
from costlab.sections.counts import counts

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "experiments" / "35-allreduce-costs"
# Megatron's datasets are built by its C++, which its wheel has for some Pythons only.
DATASETS = any("helpers_cpp.cpython" in file.name for file in files("megatron-core") or ())


@cache
def count_metrics() -> dict[str, Metric]:
    """Return the counts of two ranks and of four ranks on this machine, by id."""
    return {
        metric.id: metric
        for ranks in counts.RANKS
        for metric in launch.run(counts.measure, Settings(), ranks=ranks)
    }


def make_step(hidden: int, link: str, ratio: float) -> list[Metric]:
    """Return a point of the speed-up curve, as the section "tp" writes it."""
    start = f"tp.h{hidden}"
    up, down = (f"{start}.{which}.shardlab.{link}" for which in ("speedup", "slowdown"))
    return [
        Metric(id=up, value=ratio, unit="ratio", how="derived", device="cpu",
               low=ratio * 0.95, high=ratio * 1.05),
        Metric(id=down, value=1 / ratio, unit="ratio", how="derived", device="cpu"),
    ]  # fmt: skip


def make_lab(folder: Path, metrics: dict[str, Metric]) -> Path:
    """Make a lab's folder with the real claims and a reference of these metrics."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.toml").write_bytes((LAB / "claims.toml").read_bytes())
    section = Section(status="complete", metrics=list(metrics.values()))
    pinning = "ranks unpinned on cores 0,1; one thread a rank, and nothing else besides"
    provenance = {"processor": "a processor", "cores": 2, "pinning": pinning}
    save(
        Result(provenance=provenance, sections={"counts": section}),
        folder / "results/reference.json",
    )
    return folder
