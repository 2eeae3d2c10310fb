"""One data-parallel training step of a GPT: ours and PyTorch's DistributedDataParallel.

A step is forward, loss, backward with the reduction, and SGD. All train the same module (ours, on a
tensor axis of one rank) from the same weights, and have the same bucket sizes, so that what differs
is the data parallelism alone.

"no reduction" is the same step with gradients left as they are: what is above it is the price.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from costlab.implementations import tutor
from costlab.implementations.rounds import Step
from costlab.implementations.tp import training_step
from shardlab.comm import Axis, World
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.gpt.model import GPT


@contextmanager
def build(world: World, *, hidden: int) -> Iterator[Mapping[str, Step]]:
    """The contestants at one size, on every rank."""
    tokens, targets = tutor.batch(world.device, seed=world.rank)

    def gpt() -> GPT:
        return GPT(tutor.config(hidden), tensor=Axis.alone(), device=world.device)

    def step(
        model: GPT, forward: Callable[[Tensor], Tensor],
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Step:  # fmt: skip
        loss = model.loss
        return training_step(model.parameters(), lambda: loss(forward(tokens), targets), context)

    def ours(link: str | None) -> Step:
        model, axis = gpt(), world.axis("data", range(world.size), link=link)
        replicas = DataParallel(model.named_parameters(), axis, start="verify")

        @contextmanager
        def reduced() -> Iterator[None]:
            yield
            replicas.finish()

        return step(model, model, reduced)

    def ddp(*, views: bool) -> Step:
        model, group = gpt(), world.whole.group
        return step(
            model,
            DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=views),
        )

    plain = gpt()
    yield {
        "DDP": ddp(views=False),
        "DDP with bucket views": ddp(views=True),
        "ours over gloo": ours(None),
        "ours over shared memory": ours("shared-memory"),
        "no reduction": step(plain, plain),
    }
