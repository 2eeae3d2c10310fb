"""Stage: torch.compile, autocast and activation checkpointing over our GPT, alone and together.

Each combination's loss and gradients are compared with the plain step's. With dropout on: what is
recomputed must draw the masks again that it drew before.
"""

import itertools
import json

from costlab.gpu_report import ranks
from costlab.gpu_report.rows import seconds_left, tell

WAYS = ("compile", "autocast", "checkpoint")


def main(device: str) -> None:
    """Try every combination on one rank, and on two where two can be had."""
    counts = [count for count in ranks.counts(device) if count[0] <= 2]
    for count, shared in counts:
        for number in range(1, len(WAYS) + 1):
            for ways in itertools.combinations(WAYS, number):
                name = f"TP = {count}{', one GPU' * shared}: {' + '.join(ways)}"
                if seconds_left(0.95) < 15:
                    tell(name, "not tried: no time left")
                    continue
                ended = ranks.run(
                    count, ["-m", "costlab.gpu_report", "matrix_rank", device, *ways],
                    limit=min(100.0, seconds_left(0.95)),
                )  # fmt: skip
                report_ranks(name, ended)


def report_ranks(name: str, ended: list[ranks.Ended]) -> None:
    """Tell how far a combination's loss and gradients are from the plain step's."""
    if ranks.fault(name, ended):
        return
    report = json.loads(ended[0].last)
    seen = f"loss differs by {report['loss']:.1e}, gradients by {report['gradients']:.1e}"
    tell(name, f"{seen} (relative; limit {report['limit']:.0e})", ok=report["good"])
