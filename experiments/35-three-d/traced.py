"""One step of train.py as torch's profiler sees it, a Chrome trace for each rank.

    torchrun --nproc-per-node=2 experiments/35-three-d/traced.py trace --tp 2

The first argument is a folder, the others are train.py's. Of `--steps` steps after five of warm-up,
each recorded by itself, the shortest is kept, as the least disturbed: FOLDER/rank-0.json … opens in
https://ui.perfetto.dev or chrome://tracing. docs/theory/10-reading-a-trace.md reads one.
"""

import os
import sys
import time
from pathlib import Path

try:
    import torch
    from settings import Refused, Settings, demand_fit, parse_arguments, print_refusal
    from torch.profiler import ProfilerActivity, profile
    from train import Trainer, join_world

    from shardlab.comm import World
except ModuleNotFoundError as missing:
    sys.exit(
        f"traced.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )

WARM_UP = 5


def record_step(trainer: Trainer, number: int, load: float) -> tuple[float, profile]:
    """Run a step under the profiler; return its seconds on the slowest rank, and the record.

    `load` is the machine's before the first step; it goes into the record.
    """
    activities = [ProfilerActivity.CPU]
    if trainer.world.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    trainer.world.whole.barrier()
    with profile(activities=activities) as record:
        start = time.perf_counter()
        trainer.step(number)
        seconds = time.perf_counter() - start
        record.add_metadata_json("load-before", str(load))
    slowest = torch.tensor([seconds], dtype=torch.float64, device=trainer.world.device)
    return trainer.world.whole.all_reduce(slowest, op="max").item(), record


def trace(settings: Settings, world: World, folder: Path) -> None:
    """Record the steps; write the shortest."""
    load = round(os.getloadavg()[0], 2)
    trainer = Trainer(settings, world)
    for number in range(WARM_UP):
        trainer.step(number)
    records = [record_step(trainer, WARM_UP + number, load) for number in range(settings.steps)]
    folder.mkdir(parents=True, exist_ok=True)
    least, fastest = min(records, key=lambda record: record[0])  # the same on every rank
    fastest.export_chrome_trace(str(folder / f"rank-{world.rank}.json"))
    if world.rank == 0:
        each = ", ".join(f"{1000 * seconds:.1f}" for seconds, _ in records)
        print(f"milliseconds a step, as recorded: {each}; kept: {1000 * least:.1f}")


def main() -> int:
    """Read the command line, join the ranks, trace; return the exit status."""
    try:
        if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
            raise ValueError("name a folder for the traces first, then train.py's options")
        settings = parse_arguments(sys.argv[2:])
        demand_fit(settings, int(os.environ.get("WORLD_SIZE", "1")))
        world = join_world(settings)
    except (ValueError, RuntimeError) as error:
        return print_refusal(error)
    with world:
        try:
            trace(settings, world, Path(sys.argv[1]))
        except Refused as error:
            return print_refusal(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
