"""A sharded training step of a GPT: ours, FSDP1's, FSDP2's.

4 layers, 4 heads, sequence 128, batch 4 a rank, vocabulary 1,024, tied embeddings, fp32: the
grammar tutor at hidden 128. All train the same GPT on the same data, full shard with a block a
unit, each with the prefetching it has. A step is forward, loss, backward and AdamW with torch's
defaults, which on the CPU go through the parameters one by one; `adamw` chooses its foreach or
fused form, for all alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from shardlab.block import Block
from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP
from shardlab.model import GPT, GPTConfig
from tests.shardlab.benchmark.protocol import Step
from tests.shardlab.benchmark.table import Layout

BATCH, SEQUENCE, VOCAB, LAYERS, HEADS = 4, 128, 1024, 4, 4
BASE = "FSDP2"
HIDDEN = (64, 128, 256, 512)
FORMS: Mapping[str, Mapping[str, bool]] = {
    "default": {},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
COLUMNS = {
    "FSDP2": {"en": "FSDP2", "es": "FSDP2"},
    "FSDP1": {"en": "FSDP1", "es": "FSDP1"},
    "ours over gloo": {"en": "ours, gloo", "es": "lo nuestro, gloo"},
    "ours over shared memory": {
        "en": "ours, shared memory",
        "es": "lo nuestro, memoria compartida",
    },
}
LAYOUT = Layout(
    marker="fully-sharded",
    key="hidden",
    row={"en": "hidden", "es": "hidden"},
    columns=COLUMNS,
)


@contextmanager
def build(world: World, *, hidden: int, adamw: str = "default") -> Iterator[dict[str, Step]]:
    """One step of each contestant, at one width and with one form of AdamW."""
    wraps = {
        "FSDP2": _fsdp2,
        "FSDP1": _fsdp1,
        "ours over gloo": _ours,
        "ours over shared memory": _ours_in_shared_memory,
    }
    yield {name: _step(world, wrap, hidden, adamw) for name, wrap in wraps.items()}


def _ours(world: World, gpt: GPT) -> nn.Module:
    return FSDP(gpt, world.whole, units=gpt.layers.values(), forward_prefetch=True)


def _ours_in_shared_memory(world: World, gpt: GPT) -> nn.Module:
    axis = world.axis("data", range(world.size), link="shared-memory")
    return FSDP(gpt, axis, units=gpt.layers.values(), forward_prefetch=True)


def _fsdp1(_: World, gpt: GPT) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its deprecation
        return FullyShardedDataParallel(
            gpt,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.device("cpu"),
            forward_prefetch=True,
        )


def _fsdp2(world: World, gpt: GPT) -> nn.Module:
    mesh = init_device_mesh("cpu", (world.size,))
    for block in gpt.layers.values():
        fully_shard(block, mesh=mesh)
    fully_shard(gpt, mesh=mesh)
    return gpt


def _step(world: World, wrap: Callable[[World, GPT], nn.Module], hidden: int, adamw: str) -> Step:
    config = GPTConfig(layers=LAYERS, hidden=hidden, heads=HEADS, vocab=VOCAB, sequence=SEQUENCE)
    gpt = GPT(config, tensor=Axis.alone())
    model = wrap(world, gpt)
    form: dict[str, Any] = dict(FORMS[adamw])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **form)
    tokens, targets = _data(world.rank)

    def step() -> float:
        loss = gpt.loss(model(tokens), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def _data(rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rank)
    tokens, targets = torch.randint(VOCAB, (2, BATCH, SEQUENCE), generator=generator)
    return tokens, targets
