"""Whether a copy hides beneath a product: what FSDP's prefetching rests on, on one GPU.

While a block's products run on one stream, the bytes of a block's bf16 weights are copied on
another: within the GPU, as an all-gather fills its buffer, and from the host's pinned memory, as
offloaded weights come. The hidden share is what running both at once saves of the shorter, round
by round: 1 where it costs nothing, 0 where one waits for the other. A CPU has no streams, so that
there one runs after the other.
"""

from collections.abc import Callable, Iterator

import torch

from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.record.statistics import median_ci
from costlab.sections import device_clock
from costlab.sections.metrics import by_rounds

FROM = ("device", "host")


def metrics(
    device: torch.device, hidden: int, product: Callable[[], object], *, rounds: int, seed: int
) -> Iterator[Metric]:
    """`gpu.h….hidden-copy.device` and `….host`: shares.

    Args:
        device: where it runs.
        hidden: the block's H; 12 H² weights are copied.
        product: the block's.
        rounds: how often each is timed.
        seed: of the order within a round.
    """
    size = 12 * hidden * hidden * 2
    target = torch.empty(size, dtype=torch.uint8, device=device)
    for source in FROM:
        where = device if source == "device" else torch.device("cpu")
        pinned = source == "host" and device.type == "cuda"
        here = torch.empty(size, dtype=torch.uint8, device=where, pin_memory=pinned).fill_(0)

        def copy(here: torch.Tensor = here) -> object:
            return target.copy_(here, non_blocking=True)

        steps = {"product": product, "copy": copy, "both": _both(device, product, copy)}
        seconds = device_clock.rounds(device, steps, rounds, seed)
        shares = [
            (copy + compute - both) / min(copy, compute)
            for copy, compute, both in zip(*seconds.values(), strict=True)
        ]
        yield by_rounds(
            Name("gpu", "hidden-copy", hidden=hidden, of=source), shares, "share", how="measured",
            bytes=size, **{name: median_ci(copy).value for name, copy in seconds.items()},
        )  # fmt: skip


def _both(
    device: torch.device, product: Callable[[], object], copy: Callable[[], object]
) -> Callable[[], object]:
    if device.type != "cuda":

        def in_turn() -> None:
            copy()
            product()

        return in_turn
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy_and_compute() -> None:
        main = torch.cuda.current_stream(device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copy()
        product()
        main.wait_stream(side)

    return copy_and_compute
