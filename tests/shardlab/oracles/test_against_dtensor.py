"""Our GPT beside PyTorch's own tensor parallelism (DTensor), in fp64.

DTensor reaches the same numbers by another way: it tracks where each tensor is whole, cut or
partial, and redistributes. Its loss under `loss_parallel` is in fp64 too, so here, other than
beside Megatron, the loss itself is held to the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    loss_parallel,
)
from torch.nn import functional

from costlab.implementations import dtensor
from shardlab.comm import World
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers import partial_gradients, sharding
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import demand_alike, differences, random_tokens
from tests.shardlab.gpt_twins import (
    BATCH,
    HEADS,
    HIDDEN,
    SEQUENCE,
    VOCAB,
    Errors,
    steps_for,
    whole_weights,
)  # fmt: skip


def whole_gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    if isinstance(parameter, DTensor):
        return dtensor.whole(parameter.grad)
    return sharding.whole(parameter, parameter.grad)


def gpts(world: World, cases: list[GPTConfig]) -> Errors:
    with default_device(world):
        return {
            f"{config} {sequence=}": one_gpt(world, config, sequence, steps_for(world.size, index))
            for config in cases
            for index, sequence in enumerate((False, True))
        }


def one_gpt(world: World, config: GPTConfig, sequence: bool, steps: int) -> dict[str, float]:
    weights = whole_weights(config)
    model = GPT(config, tensor=world.whole, sequence_parallel=sequence, device=world.device)
    sharding.load_whole(model, weights)
    ours = trained(model, model.loss, lambda: partial_gradients.reduce(model, world.whole), steps)
    plain = dtensor.WholeGPT(config)
    plain.load_state_dict(weights, strict=not config.tie_embeddings)
    group, size = world.whole.group, world.size
    mesh = DeviceMesh.from_group(group, world.device.type, mesh=list(range(size)))
    dtensor.tensor_parallel(plain, mesh, sequence_parallel=sequence)
    with loss_parallel():
        reference = trained(plain, mean_loss, lambda: None, steps)
    return differences(ours, reference)


def mean_loss(logits_SBV: Tensor, targets_BS: Tensor) -> Tensor:
    return functional.cross_entropy(logits_SBV.flatten(0, 1), targets_BS.t().flatten())


def trained(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    finish: Callable[[], None],
    steps: int,
) -> dict[str, Tensor]:
    """First loss, logits and gradients, and the whole parameters after all steps."""
    seen: dict[str, Tensor] = {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        tokens = random_tokens(VOCAB, BATCH, SEQUENCE, seed=step)
        optimizer.zero_grad()
        logits = model(tokens)
        value = loss(logits, tokens.roll(-1, 1))
        value.backward()
        finish()
        if step == 0:
            seen = {"loss": dtensor.whole(value.detach())} | {
                f"gradient of {name}": whole_gradient(p) for name, p in model.named_parameters()
            }
        optimizer.step()
    seen["loss of the last step"] = dtensor.whole(value.detach())
    for name, p in model.named_parameters():
        seen[name] = dtensor.whole(p.detach()) if isinstance(p, DTensor) else sharding.whole(p)
    return seen


def config(tied: bool, groups: int, vocab: int = VOCAB) -> GPTConfig:
    return GPTConfig(
        layers=2, hidden=HIDDEN, heads=HEADS, kv_heads=groups, vocab=vocab, sequence=SEQUENCE,
        tie_embeddings=tied, dtype=torch.float64,
    )  # fmt: skip


@pytest.mark.gpu_each
@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (2, [config(tied=False, groups=8), config(tied=True, groups=2)]),
        pytest.param(4, [config(tied=True, groups=4)], marks=pytest.mark.ci),
        pytest.param(8, [config(tied=True, groups=8)], marks=pytest.mark.ci),
    ],
)
def test_the_gpt_equals_dtensors(pool: Any, size: int, cases: list[GPTConfig]) -> None:
    demand_alike(pool(size).run(gpts, cases))
