"""What a step holds on one GPU, and what it moves where FSDP keeps its state on the host.

`state` and `peak` are a step's of the whole model with AdamW, by the device's allocator; beside
them 16 bytes a parameter. `offloaded` is PyTorch's FSDP2 with `CPUOffloadPolicy` over one rank: the
bytes that a step copies to the device, and from it, counted as it copies them. Weights go up, and
again for backward where a unit was resharded; gradients come down, and the optimizer steps there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch.distributed.fsdp import CPUOffloadPolicy
from torch.utils._python_dispatch import TorchDispatchMode

from costlab.implementations.fsdp import Training, fsdp2
from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.sections.fully_sharded import footprint
from costlab.sections.metrics import derived
from shardlab.comm import World

COPIES = {"aten::copy_": 1, "aten::_to_copy": 0}  # and which argument is copied


def metrics(world: World, hidden: int) -> Iterator[Metric]:
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
