"""How long a device works: by its own events, and on CUDA without what the host takes to start it.

Elsewhere the same calls are timed by the host's clock, and nothing is captured in a graph.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

Key = TypeVar("Key")


def seconds(device: torch.device, step: Callable[[], object]) -> float:
    """Return the time from a step's first kernel to its last; all earlier work is done by then."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize(device)
        return float(begin.elapsed_time(end)) / 1000
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def rounds(
    device: torch.device, steps: Mapping[Key, Callable[[], object]], count: int, seed: int
) -> dict[Key, list[float]]:
    """Return each step's times, by rounds that run all in an order drawn anew; two more warm up."""
    order = random.Random(seed)  # noqa: S311  (an order, no secret)
    times: dict[Key, list[float]] = {key: [] for key in steps}
    for _ in range(count + 2):
        for key in order.sample(list(steps), len(steps)):
            times[key].append(seconds(device, steps[key]))
    return {key: seconds[2:] for key, seconds in times.items()}


def graphed(device: torch.device, step: Callable[[], object]) -> Callable[[], object]:
    """Return what starts all of a step's kernels at once; off CUDA the step itself."""
    if device.type != "cuda":
        return step
    step()  # what a library makes at its first call, it makes outside of the graph
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], object] = graph.replay
    return replay
