"""One training step of a GPT under tensor parallelism: ours, megatron-core's, DTensor's.

4 layers, 4 heads, sequence 128, batch 4, vocabulary 1,024, tied embeddings, fp32: the grammar tutor
at hidden 128. A step is forward, loss, backward and SGD; all start from the same weights, so their
losses agree. Nothing is favoured that a user could not have: each runs as its library offers it,
Megatron with its causal mask made beforehand, DTensor under `loss_parallel`, all with torch's SGD.

"alone" is the same step on rank 0 by itself, one thread, while rank 1 waits; "alone on both cores"
gives it as many threads as there are ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy

from shardlab.comm import Axis, World
from shardlab.model import GPT, GPTConfig
from shardlab.sharding import load_whole
from tests.shardlab import dtensor, gpt_twins, megatron_gpt
from tests.shardlab import megatron as mcore
from tests.shardlab.benchmark.protocol import Step
from tests.shardlab.benchmark.table import Layout

BATCH, SEQUENCE, VOCAB, LAYERS, HEADS = 4, 128, 1024, 4, 4
BASE = "megatron-core"
HIDDEN = (64, 128, 256, 512, 1024, 2048)
LAYOUT = Layout(
    marker="tensor-parallel",
    key="hidden",
    row={"en": "hidden", "es": "hidden"},
    columns={
        "megatron-core": {"en": "megatron-core", "es": "megatron-core"},
        "dtensor": {"en": "DTensor", "es": "DTensor"},
        "ours over gloo": {"en": "ours, gloo", "es": "lo nuestro, gloo"},
        "ours over shared memory": {
            "en": "ours, shared memory",
            "es": "lo nuestro, memoria compartida",
        },
        "alone": {"en": "one process, one thread", "es": "un proceso, un hilo"},
        "alone on both cores": {"en": "one process, 2 threads", "es": "un proceso, 2 hilos"},
    },
)


@dataclass(frozen=True)
class Task:
    """What every contestant computes: whole weights by our names, tokens and targets [B, S]."""

    config: GPTConfig
    weights: Mapping[str, Tensor]
    tokens: Tensor
    targets: Tensor


@contextmanager
def build(world: World, *, hidden: int) -> Iterator[Mapping[str, Step]]:
    """The contestants at one size, on every rank."""
    config = GPTConfig(layers=LAYERS, hidden=hidden, heads=HEADS, vocab=VOCAB, sequence=SEQUENCE)
    weights = {name: p.detach() for name, p in GPT(config, tensor=Axis.alone()).named_parameters()}
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB, (BATCH, SEQUENCE), generator=generator)
    task = Task(config, weights, tokens, tokens.roll(-1, 1))
    gloo, shared = (
        world.axis("tensor", range(world.size), link=link) for link in ("torch", "shared-memory")
    )
    with mcore.megatron(tensor=world.size):
        steps = {
            "megatron-core": megatrons(task),
            "dtensor": dtensors(task, world),
            "ours over gloo": ours(task, gloo),
            "ours over shared memory": ours(task, shared),
            "alone": alone(task, world, threads=1),
            "alone on both cores": alone(task, world, threads=world.size),
        }
        del task, weights
        yield steps


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


def ours(task: Task, axis: Axis) -> Step:
    model = GPT(task.config, tensor=axis)
    load_whole(model, task.weights)
    tokens, targets = task.tokens, task.targets
    return training_step(model.parameters(), lambda: model.loss(model(tokens), targets))


def alone(task: Task, world: World, *, threads: int) -> Step:
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


def megatrons(task: Task) -> Step:
    config = task.config
    settings = mcore.config(
        hidden=config.hidden, heads=config.heads, depth=config.layers, dtype=config.dtype
    )
    model = megatron_gpt.gpt(settings, vocab=config.vocab, sequence=config.sequence, tied=True)
    megatron_gpt.load(
        model, {gpt_twins.theirs_by_ours(name): w for name, w in task.weights.items()}
    )
    tokens, targets = task.tokens, task.targets
    positions = torch.arange(config.sequence).expand_as(tokens)
    mask = megatron_gpt.causal_mask(config.sequence)
    return training_step(
        model.parameters(), lambda: model(tokens, positions, mask, labels=targets).mean()
    )


def dtensors(task: Task, world: World) -> Step:
    model = dtensor.WholeGPT(task.config)
    model.load_state_dict(task.weights, strict=False)  # the head's is the embedding's
    mesh = DeviceMesh.from_group(world.whole.group, "cpu", mesh=list(range(world.size)))
    dtensor.tensor_parallel(model, mesh, sequence_parallel=False)
    tokens, targets = task.tokens, task.targets

    def loss() -> Tensor:
        return cross_entropy(model(tokens).flatten(0, 1), targets.t().flatten())

    return training_step(model.parameters(), loss, loss_parallel)
