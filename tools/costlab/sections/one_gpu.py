"""One GPU: how well its matrix units do at the shapes that tensor parallelism leaves to a rank.

The products of a transformer block are run at the shapes of TP = 1, 2, 4 and 8 on one GPU. The
efficiency is a whole block's time over n times a rank's: 1 where an n-th of the work takes an n-th
of the time. What one GPU can't tell is the all-reduce; its time comes from a stated model of a
named link and is marked "modelled". On a CPU nothing is measured here.

Each round visits the sizes of the axis in an order drawn anew, and a step's matrices lie elsewhere
than the last one's, round buffers of twice the cache: what a rank brings to a product is new to it.

Where matrices are small, the host may take longer to start a product than the GPU to make it. So
each step is also captured in a CUDA graph, which starts all its products at once: `graphed`, beside
the eager one in every round.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from costlab.record.names import Name
from costlab.record.options import Settings
from costlab.record.result import Item, Metric
from costlab.record.statistics import median_ci
from costlab.sections import device_clock, one_gpu_memory
from costlab.sections.metrics import by_rounds, derived
from costlab.sections.plan import Plan
from shardlab.comm import World

HIDDEN = (1024, 2048, 4096, 8192)
STEPPED = (512, 1024)  # a whole step's, with an optimizer on the host
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


def measure(world: World, settings: Settings) -> Iterator[Item]:
    """Measure on a GPU; off one, say that there is none."""
    if world.device.type == "cuda":
        yield from everything(world, settings)
    else:
        yield "no GPU here: nothing is measured"


def everything(world: World, settings: Settings) -> Iterator[Item]:
    """Efficiencies, modelled all-reduces, hidden copies; what a step holds and moves."""
    rounds = 50 if settings.profile == "full" else 15
    for hidden in HIDDEN:
        for dtype in DTYPES:
            yield f"hidden {hidden}, {dtype}"
            yield from efficiencies(world.device, hidden, dtype, rounds=rounds, seed=settings.seed)
        yield from modelled(hidden)
        (product, *_), _ = block(world.device, hidden, 1, torch.bfloat16, TOKENS)
        yield f"hidden {hidden}: copies beneath products"
        yield from one_gpu_memory.hidden_copies(
            world.device, hidden, product, rounds=rounds, seed=settings.seed
        )
    for hidden in STEPPED:
        yield f"hidden {hidden}: what a step holds and moves"
        yield from one_gpu_memory.step_memory(world, hidden)


def efficiencies(
    device: torch.device, hidden: int, dtype: str, *, tokens: int = TOKENS,
    tensor: Sequence[int] = TENSOR, rounds: int = 15, seed: int = 35,
) -> Iterator[Metric]:  # fmt: skip
    """`gpu.h….tp….….efficiency` for each axis size, the first of which must be 1; round by round.

    Args:
        device: where to multiply; the metrics are called `gpu.…`, so only a test gives a CPU, which
            has no graphs: there all is eager.
    """
    cuda = device.type == "cuda"
    cache = torch.cuda.get_device_properties(device).L2_cache_size if cuda else 0
    blocks = {n: block(device, hidden, n, DTYPES[dtype], tokens, cache=cache) for n in tensor}
    steps = {("", n): _in_turn(sets) for n, (sets, _) in blocks.items()}
    if cuda:
        graphs = {
            n: [device_clock.graphed(device, products) for products in blocks[n][0]] for n in tensor
        }
        steps |= {("graphed", n): _in_turn(sets) for n, sets in graphs.items()}
    times = device_clock.rounds(device, steps, rounds, seed)
    for (mode, ranks), mode_times in times.items():
        seconds = median_ci(mode_times).value
        yield by_rounds(
            Name("gpu", "efficiency", hidden=hidden, ranks=ranks, dtype=dtype, mode=mode),
            [whole / (ranks * cut) for whole, cut in zip(times[mode, 1], mode_times, strict=True)],
            "share", how="measured", seconds=seconds, flops=blocks[ranks][1] / seconds,
            tokens=tokens,
        )  # fmt: skip


def _in_turn(sets: Sequence[Callable[[], object]]) -> Callable[[], object]:
    turns = itertools.cycle(sets)
    return lambda: next(turns)()  # noqa: PLW0108  (another at each call)


def block(
    device: torch.device, hidden: int, ranks: int, dtype: torch.dtype, tokens: int, *,
    cache: int = 0,
) -> tuple[list[Callable[[], None]], int]:  # fmt: skip
    """One rank's products of a block, forward and backward, once for each set of matrices.

    Beside them their operations.

    QKV and up are cut along their output, projection and down along their input. Each costs
    Y = X Wᵀ, dX = dY W and dW = dYᵀ X. There are as many sets of matrices, to be used in turn, as
    make twice `cache` bytes.
    """
    features = [
        (hidden, 3 * hidden // ranks), (hidden // ranks, hidden),
        (hidden, 4 * hidden // ranks), (4 * hidden // ranks, hidden),
    ]  # fmt: skip
    shapes = [
        ((tokens, features_in), (features_out, features_in), (tokens, features_out))
        for features_in, features_out in features
    ]
    size = sum(rows * columns for layer in shapes for rows, columns in layer) * dtype.itemsize

    def make() -> Callable[[], None]:
        layers = [
            [torch.randn(shape, device=device, dtype=dtype) for shape in layer] for layer in shapes
        ]

        def step() -> None:
            for x_NH, weight_FH, grad_NF in layers:
                x_NH @ weight_FH.t()
                grad_NF @ weight_FH
                grad_NF.t() @ x_NH

        return step

    sets = [make() for _ in range(max(1, -(-2 * cache // size)))]
    return sets, sum(
        3 * 2 * tokens * features_in * features_out for features_in, features_out in features
    )


def modelled(hidden: int, *, tokens: int = TOKENS) -> Iterator[Metric]:
    """A bf16 all-reduce of one layer's output over each link and axis size: a ring's cost.

    2(n−1) messages one after another, and 2(n−1)/n of the bytes over one direction of the link.
    """
    for name, link in LINKS.items():
        for ranks in TENSOR[1:]:
            payload = 2 * tokens * hidden
            steps = 2 * (ranks - 1)
            seconds = steps * link.latency + steps / ranks * payload / link.bandwidth
            which = Name("gpu", "modelled-allreduce", hidden=hidden, ranks=ranks, of=name)
            yield derived(which, seconds, "s", "modelled", bytes=payload, **asdict(link))


PLAN = Plan(measure, ranks=lambda _: (1,))
