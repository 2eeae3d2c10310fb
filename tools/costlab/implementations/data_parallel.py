"""One data-parallel training step of a GPT: ours and PyTorch's DistributedDataParallel.

A step is forward, loss, backward with the reduction, and SGD. All train the same module (ours, on a
tensor axis of one rank) from the same weights, and have the same bucket sizes, so that what differs
is the data parallelism alone.

"no reduction" is the same step with gradients left as they are: what is above it is the price.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from costlab.implementations import tutor
from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.gpt.model import GPT

BASE = "DDP"


@contextmanager
def build(world: World, *, hidden: int) -> Iterator[Mapping[str, Step]]:
    """The contestants at one size, on every rank."""
    gloo, shared = (
        world.axis("data", range(world.size), link=link) for link in (None, "shared-memory")
    )
    yield {
        "DDP": _ddp(world, hidden, views=False),
        "DDP with bucket views": _ddp(world, hidden, views=True),
        "ours over gloo": _ours(world, hidden, gloo),
        "ours over shared memory": _ours(world, hidden, shared),
        "no reduction": _training_step(world, _gpt(world, hidden)),
    }


def _gpt(world: World, hidden: int) -> GPT:
    return GPT(tutor.config(hidden), tensor=Axis.alone(), device=world.device)


def _training_step(
    world: World, model: GPT, forward: Callable[[Tensor], Tensor] | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Step:  # fmt: skip
    """Forward, loss, backward, what is left of the reduction, SGD: the same for all."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    tokens, targets = tutor.batch(world.device, seed=world.rank)
    forward = forward or model

    def step() -> float:
        optimizer.zero_grad()
        value = model.loss(forward(tokens), targets)
        value.backward()  # type: ignore[no-untyped-call]
        finish()
        optimizer.step()
        return value.item()

    return step


def _ours(world: World, hidden: int, axis: Axis) -> Step:
    model = _gpt(world, hidden)
    replicas = DataParallel(model.named_parameters(), axis, start="verify")
    return _training_step(world, model, finish=replicas.finish)


def _ddp(world: World, hidden: int, *, views: bool) -> Step:
    model = _gpt(world, hidden)
    wrapped = DistributedDataParallel(
        model, process_group=world.whole.group, gradient_as_bucket_view=views
    )
    return _training_step(world, model, wrapped)
