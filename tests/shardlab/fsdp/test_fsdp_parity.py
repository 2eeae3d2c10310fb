"""FSDP in fp64 equals the unsharded model, FSDP1 and FSDP2: losses, gradients, parameters.

Every rank has data of its own. A wrong average shows in the first step's gradients, a stale gather
or a lost micro-batch in the losses, a wrong shard or padding in the parameters at the end: of four
steps, on eight ranks of three (two cores have eight ranks' work to do there).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP, BackwardPrefetch, ShardingStrategy
from tests.shardlab.default_device import on_default_device
from tests.shardlab.fsdp_models import (
    Block,
    Transformer,
    batch,
    furthest,
    gathered_parameters,
    optimizer_of,
    train_sharded,
    train_whole,
)

TOLERANCE = 1e-12
STEPS = {1: 4, 2: 4, 4: 4, 8: 3}  # by ranks
PRE, POST = BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch.BACKWARD_POST
S = ShardingStrategy
POLICIES: list[dict[str, Any]] = [
    {"strategy": S.FULL_SHARD, "backward_prefetch": PRE, "forward_prefetch": True},
    {"strategy": S.FULL_SHARD, "backward_prefetch": POST},
    {"strategy": S.FULL_SHARD, "backward_prefetch": None},
    {"strategy": S.SHARD_GRAD_OP, "forward_prefetch": True},
    {"strategy": S.HYBRID_SHARD, "forward_prefetch": True},
    {"strategy": S.HYBRID_SHARD_ZERO2},
    {"strategy": S.NO_SHARD},
]


def axes(world: World, strategy: ShardingStrategy) -> tuple[Axis, Axis | None]:
    """Halves of the world for a hybrid strategy: neighbours shard, ranks n/2 apart replicate."""
    if not strategy.is_hybrid:
        return world.whole, None
    inner = max(world.size // 2, 1)
    first = world.rank // inner * inner
    shard = world.axis("shard", range(first, first + inner))
    return shard, world.axis("replicate", range(world.rank % inner, world.size, inner))


def wrap(world: World, model: Any, policy: dict[str, Any]) -> FSDP:
    shard, replicate = axes(world, policy["strategy"])
    return FSDP(model, shard, units=model.blocks, replicate=replicate, **policy)


class Whole(NamedTuple):
    """What the unsharded model makes of all ranks' data: losses by step and rank, and the rest."""

    losses: list[list[float]]
    gradients: list[dict[str, Tensor]]
    parameters: dict[str, Tensor]


@on_default_device
def whole_run(world: World, ranks: int, kind: str, micro: int) -> Whole:
    model = Transformer()
    losses, gradients = train_whole(model, ranks, kind, STEPS[ranks], micro)
    return Whole(losses, gradients, {n: p.detach() for n, p in model.named_parameters()})


@pytest.fixture(scope="module")
def whole(pool: Callable[[int], Any]) -> Callable[[int, str, int], Whole]:
    """The unsharded run, made once for all ranks and policies that are compared with it."""
    return cache(lambda ranks, kind, micro: pool(1).run(whole_run, ranks, kind, micro)[0])


@on_default_device
def compare(
    world: World, kind: str, policies: list[dict[str, Any]], micro: int, no_sync: bool, whole: Whole
) -> list[tuple[str, float]]:
    errors = []
    steps = STEPS[world.size]
    for policy in policies:
        model = wrap(world, Transformer(), policy)
        ours, grads = train_sharded(
            model, world.rank, kind, steps, micro, no_sync, look=(0, steps - 1)
        )
        error = max(
            abs(a - b[world.rank]) / b[world.rank] for a, b in zip(ours, whole.losses, strict=True)
        )
        error = max([error, *(furthest(grads[step], whole.gradients[step]) for step in grads)])
        error = max(error, furthest(gathered_parameters(model), whole.parameters))
        errors.append((str(policy), error))
    return errors


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", [pytest.param("sgd", marks=pytest.mark.ci), "adamw"])
def test_training_equals_the_unsharded_models_under_every_policy(
    pool: Callable[[int], Any], whole: Callable[[int, str, int], Whole], size: int, kind: str
) -> None:
    # On many ranks half of the policies meet one optimizer, half the other: the suite has a budget.
    policies = POLICIES if size < 4 else POLICIES[kind == "sgd" :: 2]
    for rank in pool(size).run(compare, kind, policies, 1, False, whole(size, kind, 1)):
        assert [(p, e) for p, e in rank if e > TOLERANCE] == []


@pytest.mark.ci
@pytest.mark.parametrize("no_sync", [True, False])
def test_three_micro_batches_equal_one_batch_with_and_without_sync(
    pool: Callable[[int], Any], whole: Callable[[int, str, int], Whole], no_sync: bool
) -> None:
    policies = [POLICIES[0], *POLICIES[4:]]
    for rank in pool(4).run(compare, "sgd", policies, 3, no_sync, whole(4, "sgd", 3)):
        assert [(p, e) for p, e in rank if e > TOLERANCE] == []


# ---------------------------------------------------------------------- against PyTorch's own


def train_theirs(model: nn.Module, rank: int, kind: str, steps: int) -> list[float]:
    optimizer = optimizer_of(kind, model.parameters())
    losses = []
    for step in range(steps):
        loss = model(*batch(rank, step))
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def fsdp1(world: World, kind: str) -> tuple[list[float], dict[str, Tensor]]:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        Transformer(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=world.device,
        use_orig_params=True,
    )
    losses = train_theirs(model, world.rank, kind, STEPS[world.size])
    with FullyShardedDataParallel.summon_full_params(model):
        return losses, {
            name.replace("_fsdp_wrapped_module.", ""): parameter.detach().clone()
            for name, parameter in model.named_parameters()
        }


def fsdp2(world: World, kind: str) -> tuple[list[float], dict[str, Tensor]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    mesh = init_device_mesh(world.device.type, (world.size,))
    model = Transformer()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = train_theirs(model, world.rank, kind, STEPS[world.size])
    whole = {}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        whole[name] = parameter.full_tensor().detach()
    return losses, whole


@on_default_device
def against_torch(world: World, kind: str) -> dict[str, float]:
    model = wrap(world, Transformer(), POLICIES[0])
    losses, _ = train_sharded(model, world.rank, kind, steps=STEPS[world.size], look=())
    whole = gathered_parameters(model)
    errors = {}
    for name, train_torch in (("FSDP1", fsdp1), ("FSDP2", fsdp2)):
        their_losses, their_whole = train_torch(world, kind)
        loss = max(abs(a - b) / b for a, b in zip(losses, their_losses, strict=True))
        assert set(their_whole) == set(whole)
        errors[name] = max(loss, furthest(whole, their_whole))
    return errors


@pytest.mark.gpu_each
@pytest.mark.parametrize(
    ("size", "kind"),
    [
        (1, "adamw"),
        (2, "sgd"),
        pytest.param(4, "adamw", marks=pytest.mark.ci),
        pytest.param(8, "sgd", marks=pytest.mark.ci),
    ],
)
def test_training_equals_fsdp1s_and_fsdp2s(
    pool: Callable[[int], Any], device: str, size: int, kind: str
) -> None:
    for errors in pool(size).run(against_torch, kind):
        assert {name: e for name, e in errors.items() if e > TOLERANCE} == {}
