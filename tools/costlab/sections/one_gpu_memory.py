"""One GPU's copies and memory: copies that hide beneath products, and what a step holds and moves.

`hidden_copies`: while a block's products run on one stream, the bytes of a block's bf16 weights are
copied on another: within the GPU, as an all-gather fills its buffer, and from the host's pinned
memory, as offloaded weights come. The hidden share is what running both at once saves of the
shorter, round by round: 1 where it costs nothing, 0 where one waits for the other. FSDP's
prefetching rests on it. A CPU has no streams, so that there one runs after the other.

`step_memory`: `state` and `peak` are a step's of the whole model with AdamW, by the device's
allocator; beside them 16 bytes a parameter. `offloaded` is PyTorch's FSDP2 with `CPUOffloadPolicy`
over one rank: the bytes that a step copies to the device, and from it, counted as it copies them.
Weights go up, and again for backward where a unit was resharded; gradients come down, and the
optimizer steps there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.utils._python_dispatch import TorchDispatchMode

from costlab.implementations.fsdp import Training, fsdp2
from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.record.statistics import median_ci
from costlab.sections import device_clock
from costlab.sections.fully_sharded import footprint
from costlab.sections.metrics import by_rounds, derived
from shardlab.comm import World

FROM = ("device", "host")
COPIES = {"aten::copy_": 1, "aten::_to_copy": 0}  # and which argument is copied


def hidden_copies(
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


def step_memory(world: World, hidden: int) -> Iterator[Metric]:
    """`gpu.h….state`, `….state.formula`, `….peak`, `….offloaded.up`, `….offloaded.down`."""
    base = Name("gpu", hidden=hidden)
    measured = footprint.measured(world, lambda _, gpt: gpt, hidden)
    for what, value in {"state": measured.state, "peak": measured.peak}.items():
        yield derived(base.but(what=what), value, "B", "measured")
    moved, weights = offloaded(world, hidden)
    yield derived(base.but(what="state", of="formula"), 4 * weights, "B")
    for way, value in moved.items():
        yield derived(base.but(what="offloaded", of=way), value, "B", "counted", weights=weights)


def offloaded(world: World, hidden: int) -> tuple[dict[str, int], int]:
    """Bytes that a step copies up to the device and down from it; and those of all weights."""
    policy = CPUOffloadPolicy(pin_memory=world.device.type == "cuda")
    training = Training(
        world, lambda world, gpt: fsdp2(world, gpt, gpt.layers.values(), offload_policy=policy),
        hidden,
    )  # fmt: skip
    training.step()
    with Copied() as copied:
        training.loss().backward()  # type: ignore[no-untyped-call]
        training.finish()
    device, weights = world.device.type, sum(p.nbytes for p in training.gpt.parameters())
    return {"up": copied.bytes["cpu", device], "down": copied.bytes[device, "cpu"]}, weights


class Copied(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that operators copy from one kind of device to another.

    Attributes:
        bytes: by (from, to).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func`; where it is a copy to another kind of device, count it."""
        result = func(*args, **(kwargs or {}))
        place = COPIES.get(func._schema.name)
        if place is not None and args[place].device.type != result.device.type:
            self.bytes[args[place].device.type, result.device.type] += args[place].nbytes
        return result
