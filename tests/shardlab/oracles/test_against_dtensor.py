"""Our layers and GPT beside PyTorch's own tensor parallelism (DTensor), in fp64.

DTensor reaches the same numbers by another way: it tracks where each tensor is whole, cut or
partial, and redistributes. Its loss under `loss_parallel` is in fp64 too, so here, other than
beside Megatron, the loss itself is held to the last bits.

Dimensions: S sequence, B batch, H input features, F output features, V vocabulary; lower case where
sharded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

from costlab.implementations import dtensor
from shardlab.comm import World
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers import linear, partial_gradients, sharding
from shardlab.layers.cross_entropy import cross_entropy
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import demand_alike, differences, random_like, random_tokens
from tests.shardlab.gpt_twins import BATCH, HEADS, HIDDEN, SEQUENCE, VOCAB, whole_weights
from tests.shardlab.layer_twins import B, Errors, F, H, S, fp64, part, steps_for


def mesh_of(world: World) -> DeviceMesh:
    return DeviceMesh.from_group(world.whole.group, world.device.type, mesh=list(range(world.size)))


def linears(world: World) -> Errors:
    with default_device(world):
        return {
            f"{kind} {sequence=}": one_linear(world, kind, sequence)
            for kind, sequence in product(["column", "row"], [False, True])
        }


def one_linear(world: World, kind: str, sequence: bool) -> dict[str, float]:
    outside = Shard(0) if sequence else Replicate()
    settings: dict[str, Any] = {
        "axis": world.whole, "sequence_parallel": sequence, "init": fp64(world)
    }  # fmt: skip
    plain = nn.Linear(H, F, dtype=torch.float64)
    ours: nn.Module
    plan: ParallelStyle
    cut_x: int | None
    cut_y: int | None
    if kind == "column":
        ours = linear.ColumnParallelLinear(H, F, **settings)
        plan = ColwiseParallel(input_layouts=outside)
        cut_x, cut_y = 0 if sequence else None, -1
    else:
        ours = linear.RowParallelLinear(H, F, **settings)
        plan = RowwiseParallel(output_layouts=outside)
        cut_x, cut_y = -1, 0 if sequence else None
    sharding.load_whole(ours, dict(plain.named_parameters()))
    reference = parallelize_module(plain, mesh_of(world), plan)
    x = part(world, random_like(S, B, H, seed=1), cut_x)
    target = part(world, random_like(S, B, F, seed=2), cut_y)
    return differences(
        gradients(ours, x, target, lambda layer: partial_gradients.reduce(layer, world.whole)),
        gradients(reference, x, target, lambda layer: None),
    )


def gradients(
    layer: nn.Module, x: Tensor, target: Tensor, finish: Callable[[nn.Module], None]
) -> dict[str, Tensor]:
    """The output, the input's gradient and the whole parameters'."""
    x = x.detach().requires_grad_()
    y = layer(x)
    ((y - target) ** 2).sum().backward()
    finish(layer)
    assert x.grad is not None
    return {"output": y.detach(), "input": x.grad} | {
        name: whole_gradient(p) for name, p in layer.named_parameters()
    }


def whole_gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    if isinstance(parameter, DTensor):
        return dtensor.whole(parameter.grad)
    return sharding.whole(parameter, parameter.grad)


@pytest.mark.gpu_each
@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_linear_layer_equals_dtensors(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(linears))


def losses(world: World) -> Errors:
    with default_device(world):
        logits = random_like(S * B, 5 * world.size, seed=1).mul(3)
        targets = random_tokens(5 * world.size, S * B, seed=2)
    ours_x, reference_x = (part(world, logits, -1).requires_grad_() for _ in range(2))
    ours = cross_entropy(ours_x, targets, axis=world.whole).mean()
    ours.backward()
    with loss_parallel():
        sharded_logits = DTensor.from_local(reference_x, mesh_of(world), [Shard(1)])
        reference = functional.cross_entropy(sharded_logits, targets)
        reference.backward()
    assert ours_x.grad is not None
    assert reference_x.grad is not None
    return {
        "loss": differences(
            {"loss": ours.detach(), "gradient": ours_x.grad},
            {"loss": dtensor.whole(reference.detach()), "gradient": reference_x.grad},
        )
    }


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_loss_equals_loss_parallel(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(losses))


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
    dtensor.tensor_parallel(plain, mesh_of(world), sequence_parallel=sequence)
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
