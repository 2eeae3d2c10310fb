"""One GPU: how well its matrix units do at the shapes that tensor parallelism leaves to a rank.

The products of a transformer block are run at the shapes of TP = 1, 2, 4 and 8 on one GPU. The
efficiency is a whole block's time over n times a rank's: 1 where an n-th of the work takes an n-th
of the time. What one GPU can't tell is the all-reduce; its time comes from a stated model of a
named link and is marked "modelled". On a CPU nothing is measured here.

Each round visits the sizes of the axis in an order drawn anew, and a step's matrices lie elsewhere
than the last one's, round buffers of twice the cache: what a rank brings to a product is new to it.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.record.settings import Settings
from costlab.record.statistic import middle
from costlab.sections.plan import Plan
from costlab.sections.timed import by_rounds
from shardlab.comm import World

HIDDEN = (1024, 2048, 4096, 8192)
TENSOR = (1, 2, 4, 8)
TOKENS = 4096
DTYPES: Mapping[str, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Link:
    """A link as its maker states it; no measurement.

    Args:
        bandwidth: bytes a second in one direction, of one GPU.
        latency: seconds a message, a usual figure.
        source: where the bandwidth is stated.
    """

    bandwidth: float
    latency: float
    source: str


LINKS = {
    "nvlink4": Link(450e9, 5e-6, "H100 SXM data sheet: 900 GB/s, both directions together"),
    "pcie4-x16": Link(31.5e9, 10e-6, "PCIe 4.0: 16 GT/s, 16 lanes, 128b/130b"),
    "ib-ndr": Link(50e9, 10e-6, "InfiniBand NDR: 400 Gbit/s a port"),
}


def measure(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Efficiencies for every hidden size and dtype, and the modelled all-reduces."""
    if world.device.type != "cuda":
        yield "no GPU here: nothing is measured"
        return
    rounds = 50 if settings.profile == "full" else 15
    for hidden in HIDDEN:
        for dtype in DTYPES:
            yield f"hidden {hidden}, {dtype}"
            yield from efficiencies(world.device, hidden, dtype, rounds=rounds, seed=settings.seed)
        yield from modelled(hidden)


def efficiencies(
    device: torch.device, hidden: int, dtype: str, *, tokens: int = TOKENS,
    tensor: Sequence[int] = TENSOR, rounds: int = 15, seed: int = 35,
) -> Iterator[Metric]:  # fmt: skip
    """`gpu.h….tp….….efficiency` for each axis size, the first of which must be 1; round by round.

    Args:
        device: where to multiply; the metrics are called `gpu.…`, so only a test gives a CPU.
    """
    cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0
    blocks = [block(device, hidden, ranks, DTYPES[dtype], tokens, cache=cache) for ranks in tensor]
    order, times = random.Random(seed), []  # noqa: S311  (an order, no secret)
    for _ in range(rounds + 2):
        visited = order.sample(range(len(blocks)), len(blocks))
        taken = {place: _seconds(device, blocks[place][0]) for place in visited}
        times.append([taken[place] for place in range(len(blocks))])
    del times[:2]
    for place, ranks in enumerate(tensor):
        mine = [one[place] for one in times]
        seconds = middle(mine).value
        yield by_rounds(
            Name("gpu", "efficiency", hidden=hidden, ranks=ranks, dtype=dtype),
            [whole / (ranks * cut) for (whole, *_), cut in zip(times, mine, strict=True)],
            "share", how="measured", seconds=seconds, flops=blocks[place][1] / seconds,
            tokens=tokens,
        )  # fmt: skip


def block(
    device: torch.device, hidden: int, ranks: int, dtype: torch.dtype, tokens: int, *,
    cache: int = 0,
) -> tuple[Callable[[], None], int]:  # fmt: skip
    """One rank's products of a block, forward and backward; and their operations.

    QKV and up are cut along their output, projection and down along their input. Each costs
    Y = X Wᵀ, dX = dY W and dW = dYᵀ X. There are as many sets of matrices, used in turn, as make
    twice `cache` bytes.
    """
    features = [
        (hidden, 3 * hidden // ranks), (hidden // ranks, hidden),
        (hidden, 4 * hidden // ranks), (4 * hidden // ranks, hidden),
    ]  # fmt: skip
    shapes = [((tokens, given), (taken, given), (tokens, taken)) for given, taken in features]
    size = sum(rows * columns for layer in shapes for rows, columns in layer) * dtype.itemsize
    sets = itertools.cycle(
        [
            [
                [torch.randn(shape, device=device, dtype=dtype) for shape in layer]
                for layer in shapes
            ]
            for _ in range(max(1, -(-2 * cache // size)))
        ]
    )

    def step() -> None:
        for x_NH, weight_FH, grad_NF in next(sets):
            x_NH @ weight_FH.t()
            grad_NF @ weight_FH
            grad_NF.t() @ x_NH

    return step, sum(3 * 2 * tokens * given * taken for given, taken in features)


def modelled(hidden: int, *, tokens: int = TOKENS) -> Iterator[Metric]:
    """A bf16 all-reduce of one layer's output over each link and axis size: a ring's cost.

    2(n−1) messages one after another, and 2(n−1)/n of the bytes over one direction of the link.
    """
    for name, link in LINKS.items():
        for ranks in TENSOR[1:]:
            payload = 2 * tokens * hidden
            steps = 2 * (ranks - 1)
            seconds = steps * link.latency + steps / ranks * payload / link.bandwidth
            yield Metric(
                id=Name("gpu", "modelled-allreduce", hidden=hidden, ranks=ranks, of=name).id,
                value=seconds,
                unit="s",
                how="modelled",
                detail={
                    "bytes": payload, "bandwidth": link.bandwidth, "latency": link.latency,
                    "source": link.source,
                },
            )  # fmt: skip


def _seconds(device: torch.device, step: Callable[[], None]) -> float:
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


PLAN = Plan(measure, ranks=lambda _: (1,))
