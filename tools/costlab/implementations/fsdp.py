"""A sharded training step of a GPT: ours, FSDP1's, FSDP2's; and DDP's, which shards nothing.

All train the same GPT on the same data, full shard with a block a unit, each with the prefetching
it has. A step is forward, loss, backward and AdamW with torch's defaults, which on the CPU go
through the parameters one by one.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.nn.parallel import DistributedDataParallel

from costlab.implementations import tutor
from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP
from shardlab.gpt.model import GPT

BASE = "FSDP2"
SHARDED = ("FSDP2", "FSDP1", "ours over gloo", "ours over shared memory")
Wrap = Callable[[World, GPT], nn.Module]


@contextmanager
def build(
    world: World, *, hidden: int, contestants: Sequence[str] = SHARDED, adamw: str = "default"
) -> Iterator[dict[str, Step]]:
    """One step of each contestant, at one width, with a form of torch's AdamW."""
    form = {} if adamw == "default" else {adamw: True}
    yield {name: Training(world, WRAPS[name], hidden, **form).step for name in contestants}


class Training:
    """A model, its optimizer and its data.

    Attributes:
        gpt: the model inside.
        model: what is called.
        optimizer: of what the wrapper left as parameters; its form, `foreach` or `fused`, may be
            given.
    """

    def __init__(self, world: World, wrap: Wrap, hidden: int, **adamw: bool) -> None:
        self.gpt = GPT(tutor.config(hidden), tensor=Axis.alone(), device=world.device)
        self.model = wrap(world, self.gpt)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **adamw)  # type: ignore[arg-type]
        self._tokens, self._targets = tutor.batch(world.device, seed=world.rank)

    def step(self) -> float:
        """Forward, loss, backward, AdamW; gradients are let go at the end."""
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        self.finish()
        return loss.item()

    def loss(self) -> Tensor:
        """The forward half: one number, with its graph."""
        return self.gpt.loss(self.model(self._tokens), self._targets)

    def finish(self) -> None:
        """What comes after backward."""
        self.optimizer.step()
        self.optimizer.zero_grad()


def ours(axis: Axis, gpt: GPT) -> FSDP:
    """shardlab's, prefetching in both directions."""
    return FSDP(gpt, axis, units=gpt.layers.values(), forward_prefetch=True)


def ddp(world: World, gpt: GPT) -> nn.Module:
    """PyTorch's DistributedDataParallel as it comes."""
    return DistributedDataParallel(gpt, process_group=world.whole.group)


def fsdp1(world: World, module: nn.Module, units: Iterable[nn.Module], **how: Any) -> nn.Module:
    """PyTorch's FullyShardedDataParallel of some units and the rest; `how` as it takes it."""
    policy = CustomPolicy(set(units).__contains__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its deprecation
        return FullyShardedDataParallel(
            module, auto_wrap_policy=policy, device_id=world.device, **how
        )


def fsdp2(world: World, module: nn.Module, units: Iterable[nn.Module], **how: Any) -> nn.Module:
    """PyTorch's fully_shard of some units and the rest; `how` as it takes it."""
    mesh = init_device_mesh(world.device.type, (world.size,))
    for unit in (*units, module):
        fully_shard(unit, mesh=mesh, **how)
    return module


WRAPS: dict[str, Wrap] = {
    "FSDP2": lambda world, gpt: fsdp2(world, gpt, gpt.layers.values()),
    "FSDP1": lambda world, gpt: fsdp1(world, gpt, gpt.layers.values(), forward_prefetch=True),
    "DDP": ddp,
    "ours over gloo": lambda world, gpt: ours(world.whole, gpt),
    "ours over shared memory": lambda world, gpt: ours(
        world.axis("data", range(world.size), link="shared-memory"), gpt
    ),
}
