"""One training step of a GPT under tensor parallelism: ours, megatron-core's, DTensor's.

A step is forward, loss, backward and SGD; all start from the same weights, so their losses agree.
Nothing is favoured that a user could not have: each runs as its library offers it, Megatron with
its causal mask made beforehand, DTensor under `loss_parallel`, all with torch's SGD.

"alone" is the same step on rank 0 by itself, one thread, while the others wait; "alone on both
cores" gives it as many threads as there are ranks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy

from costlab.implementations import tutor
from costlab.implementations.rounds import Step
from shardlab.comm import Axis, World
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers.matmul import fuse

BASE = "megatron-core"
ALL = (BASE, "dtensor", "ours over gloo", "ours over shared memory", "alone", "alone on both cores")
LINEARS = "megatron-core's linears"  # in our model
LINKS = {"ours over shared memory": "shared-memory"}


@dataclass(frozen=True)
class Task:
    """What every contestant computes: tokens and targets [B, S]; weights come from the seed."""

    config: GPTConfig
    tokens: Tensor
    targets: Tensor
    device: torch.device

    def weights(self) -> Mapping[str, Tensor]:
        """Whole weights by our names: those that any of our models starts from."""
        whole = GPT(self.config, tensor=Axis.alone(), device=self.device)
        return {name: p.detach() for name, p in whole.named_parameters()}


@contextmanager
def build(
    world: World, *, hidden: int, contestants: Sequence[str] = ALL, llama: bool = False
) -> Iterator[Mapping[str, Step]]:
    """The contestants at one size, on every rank; Llama's block has two queries a group."""
    choices = LLAMA | {"kv_heads": tutor.HEADS // 2} if llama else {}
    task = Task(tutor.config(hidden, **choices), *tutor.batch(world.device), world.device)
    with ExitStack() as stack:
        if {BASE, LINEARS} & set(contestants):  # imported here, since that takes seconds
            from costlab.implementations import megatron as mcore

            with world.device:  # while it is set up; a step under it would be slower
                stack.enter_context(mcore.megatron(tensor=world.size))
        yield {name: contestant(name, task, world) for name in contestants}


def contestant(name: str, task: Task, world: World) -> Step:
    """One of them, on this rank."""
    alone = {"alone": 1, "alone on both cores": world.size}
    if name in alone:
        return _alone(task, world, threads=alone[name])
    if name == BASE:
        with task.device:
            return _megatrons(task)
    axis = world.axis("tensor", range(world.size), link=LINKS.get(name))
    if name == LINEARS:
        with task.device:
            return _with_megatrons_linears(task, axis)
    return _dtensors(task, axis) if name == "dtensor" else ours(task, axis)


def ours(task: Task, axis: Axis) -> Step:
    """The step of shardlab's GPT over `axis`, its linears fused."""
    return training(fuse(GPT(task.config, tensor=axis, device=task.device)), task)


def training(model: GPT, task: Task) -> Step:
    """The step of a model with our loss."""
    tokens, targets = task.tokens, task.targets
    return training_step(model.parameters(), lambda: model.loss(model(tokens), targets))


def training_step(
    parameters: Iterable[nn.Parameter], loss: Callable[[], Tensor],
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Step:  # fmt: skip
    """Forward, loss, backward, SGD: the same for all."""
    optimizer = sgd(parameters)

    def step() -> float:
        optimizer.zero_grad()
        with context():
            value = loss()
            value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return value.item()

    return step


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD over lists of tensors; DTensors and plain tensors can't stand in one list."""
    both: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for parameter in parameters:
        both[isinstance(parameter, DTensor)].append(parameter)
    return torch.optim.SGD([{"params": group} for group in both if group], lr=1e-3, foreach=True)


def _alone(task: Task, world: World, *, threads: int) -> Step:
    if world.rank != 0:
        return lambda: None
    step = ours(task, Axis.alone())

    def threaded() -> float | None:
        torch.set_num_threads(threads)
        try:
            return step()
        finally:
            torch.set_num_threads(1)

    return threaded if threads > 1 else step


def _megatrons(task: Task) -> Step:
    from costlab.implementations import megatron as mcore
    from costlab.implementations.megatron import gpt as megatron_gpt

    config = task.config
    settings = mcore.config(
        hidden=config.hidden, heads=config.heads, depth=config.layers, dtype=config.dtype,
        **megatron_gpt.block_of(config),
    )  # fmt: skip
    model = megatron_gpt.gpt(
        settings, vocab=config.vocab, sequence=config.sequence, tied=config.tie_embeddings,
        position_embedding_type=megatron_gpt.POSITIONS[config.position],
        rotary_base=config.rope_base,
    )  # fmt: skip
    megatron_gpt.load(
        model, {megatron_gpt.theirs_by_ours(name): w for name, w in task.weights().items()}
    )
    tokens, targets = task.tokens, task.targets
    positions = torch.arange(config.sequence, device=task.device).expand_as(tokens)
    mask = megatron_gpt.causal_mask(config.sequence)
    return training_step(
        model.parameters(), lambda: model(tokens, positions, mask, labels=targets).mean()
    )


def _with_megatrons_linears(task: Task, axis: Axis) -> Step:
    from costlab.implementations import megatron as mcore
    from costlab.implementations.megatron.gpt import with_megatrons_linears

    settings = mcore.config(
        hidden=task.config.hidden, heads=task.config.heads, dtype=task.config.dtype
    )
    model = fuse(GPT(task.config, tensor=axis, device=task.device))
    return training(with_megatrons_linears(model, settings), task)


def _dtensors(task: Task, axis: Axis) -> Step:
    from costlab.implementations import dtensor

    model = dtensor.WholeGPT(task.config).to(task.device)
    model.load_state_dict(task.weights(), strict=False)  # the head's is the embedding's
    mesh = DeviceMesh.from_group(axis.group, task.device.type, mesh=list(axis.ranks))
    dtensor.tensor_parallel(model, mesh, sequence_parallel=False)
    tokens, targets = task.tokens, task.targets

    def loss() -> Tensor:
        return cross_entropy(model(tokens).flatten(0, 1), targets.t().flatten())

    return training_step(model.parameters(), loss, loss_parallel)
