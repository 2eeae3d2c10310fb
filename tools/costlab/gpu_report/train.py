"""Stage: lab 01 on every grid of the ranks there are, beside one process on the CPU; a GPT in bf16.

A grid's losses equal those of one process on the CPU to 1e-4: fp32, eight steps.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from costlab.gpu_report import ranks
from costlab.gpu_report.report import seconds_left, tell

LAB = Path(__file__).parents[3] / "experiments" / "35-three-d" / "train.py"
NEAR = 1e-4
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


def main(device: str) -> None:
    """Train everywhere; then time the GPT."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "losses")
        reference = losses(1, ["--cpu"], file)
        if not reference:
            return
        # The timing first: it is what a GPU is borrowed for.
        throughput(device)
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
