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
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

from shardlab import linear, partial_gradients, sharding
from shardlab.comm import World
from shardlab.cross_entropy import cross_entropy
from shardlab.init import Init
from shardlab.model import GPT, GPTConfig
from tests.shardlab import dtensor
from tests.shardlab.difference import demand_alike, differences, random_like
from tests.shardlab.gpt_twins import BATCH, HEADS, HIDDEN, SEQUENCE, STEPS, VOCAB, whole_weights

S, B, H, F = 8, 2, 16, 24
Found = dict[str, dict[str, float]]


def mesh_of(world: World) -> DeviceMesh:
    return DeviceMesh.from_group(world.whole.group, world.device.type, mesh=list(range(world.size)))


def linears(world: World) -> Found:
    found = {}
    for kind, sequence in product(["column", "row"], [False, True]):
        outside = Shard(0) if sequence else Replicate()
        settings: dict[str, Any] = {
            "axis": world.whole, "sequence_parallel": sequence, "init": Init(dtype=torch.float64)
        }  # fmt: skip
        plain = nn.Linear(H, F, dtype=torch.float64)
        ours: nn.Module
        if kind == "column":
            ours, plan = (
                linear.ColumnParallelLinear(H, F, **settings),
                ColwiseParallel(input_layouts=outside),
            )
            cut_x, cut_y = 0 if sequence else None, -1
        else:
            ours, plan = (
                linear.RowParallelLinear(H, F, **settings),
                RowwiseParallel(output_layouts=outside),
            )
            cut_x, cut_y = -1, 0 if sequence else None
        sharding.load_whole(ours, dict(plain.named_parameters()))
        theirs = parallelize_module(plain, mesh_of(world), plan)
        x = part(world, random_like(S, B, H, seed=1), cut_x)
        target = part(world, random_like(S, B, F, seed=2), cut_y)
        found[f"{kind} {sequence=}"] = differences(
            gradients(ours, x, target, lambda layer: partial_gradients.reduce(layer, world.whole)),
            gradients(theirs, x, target, lambda layer: None),
        )
    return found


def part(world: World, whole: Tensor, dim: int | None) -> Tensor:
    return whole if dim is None else whole.chunk(world.size, dim)[world.rank].contiguous()


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


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_linear_layer_equals_dtensors(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(linears))


def losses(world: World) -> Found:
    """A vocabulary that divides, and one that does not: DTensor pads nothing, it cuts unevenly."""
    logits = random_like(S * B, 5 * world.size, seed=1).mul(3)
    targets = torch.randint(5 * world.size, (S * B,), generator=torch.Generator().manual_seed(2))
    local = part(world, logits, -1)
    ours_x = local.clone().requires_grad_()
    ours = cross_entropy(ours_x, targets, axis=world.whole).mean()
    ours.backward()
    theirs_x = local.clone().requires_grad_()
    with loss_parallel():
        placed = DTensor.from_local(theirs_x, mesh_of(world), [Shard(1)])
        theirs = functional.cross_entropy(placed, targets)
        theirs.backward()
    assert ours_x.grad is not None and theirs_x.grad is not None
    return {
        "loss": differences(
            {"loss": ours.detach(), "gradient": ours_x.grad},
            {"loss": dtensor.whole(theirs.detach()), "gradient": theirs_x.grad},
        )
    }


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_loss_equals_loss_parallel(pool: Any, size: int) -> None:
    demand_alike(pool(size).run(losses))


def gpts(world: World, cases: list[tuple[bool, int, bool]]) -> Found:
    found = {}
    for tied, groups, sequence in cases:
        config = GPTConfig(
            layers=2, hidden=HIDDEN, heads=HEADS, kv_heads=groups, vocab=VOCAB, sequence=SEQUENCE,
            tie_embeddings=tied, dtype=torch.float64,
        )  # fmt: skip
        weights = whole_weights(config)
        model = GPT(config, tensor=world.whole, sequence_parallel=sequence)
        sharding.load_whole(model, weights)
        ours = trained(model, model.loss, lambda m=model: partial_gradients.reduce(m, world.whole))
        plain = dtensor.WholeGPT(
            layers=2, hidden=HIDDEN, heads=HEADS, groups=groups, vocab=VOCAB, sequence=SEQUENCE,
            tied=tied,
        ).double()  # fmt: skip
        plain.load_state_dict(weights, strict=not tied)
        dtensor.tensor_parallel(plain, mesh_of(world), sequence_parallel=sequence)
        with loss_parallel():
            theirs = trained(plain, mean_loss, lambda: None)
        found[f"{tied=} {groups=} {sequence=}"] = differences(ours, theirs)
    return found


def mean_loss(logits_SBV: Tensor, targets_BS: Tensor) -> Tensor:
    return functional.cross_entropy(logits_SBV.flatten(0, 1), targets_BS.t().flatten())


def trained(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], finish: Callable[[], None]
) -> dict[str, Tensor]:
    """First loss, logits and gradients, and the whole parameters after ten steps."""
    seen: dict[str, Tensor] = {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        tokens = torch.randint(VOCAB, (BATCH, SEQUENCE), generator=generator)
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
    seen[f"loss of step {STEPS}"] = dtensor.whole(value.detach())
    for name, p in model.named_parameters():
        seen[name] = dtensor.whole(p.detach()) if isinstance(p, DTensor) else sharding.whole(p)
    return seen


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (2, [(False, 8, False), (False, 4, True), (True, 2, False), (True, 8, True)]),
        (4, [(False, 8, False), (True, 4, True)]),
        (8, [(True, 8, True)]),
    ],
)
def test_the_gpt_equals_dtensors(pool: Any, size: int, cases: list[tuple[bool, int, bool]]) -> None:
    demand_alike(pool(size).run(gpts, cases))
