"""Where tensor parallelism begins to pay: the hidden size at which the speed-up crosses 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from costlab.result import Metric
from costlab.timed import derived


def crossover(link: str, speedups: Mapping[int, float]) -> Iterator[Metric]:
    """Where the speed-up crosses 1 for good, interpolated between the logarithms of the sizes."""
    name, _, end = link.partition(".")
    start, end = f"tp.crossover.shardlab.{name}", f".{end}" if end else ""
    sizes = sorted(speedups)
    slow = [hidden for hidden in sizes if speedups[hidden] < 1]
    words = "slower everywhere" if slow and slow[-1] == sizes[-1] else ""
    words = words if slow else "faster everywhere"
    yield derived(
        f"{start}.exists{end}", float(not words), "count", found=words or "crosses",
        least=sizes[0], most=sizes[-1],
    )  # fmt: skip
    if words:
        return
    below = slow[-1]
    above = sizes[sizes.index(below) + 1]
    ahead, behind = math.log(speedups[above]), math.log(speedups[below])
    place = math.log(below) + math.log(above / below) * -behind / (ahead - behind)
    faster = [speedups[hidden] >= 1 for hidden in sizes]
    crossings = sum(one != next_one for one, next_one in itertools.pairwise(faster))
    about = {"below": below, "above": above, "crossings": crossings}
    yield derived(f"{start}{end}", math.exp(place), "hidden", **about)
