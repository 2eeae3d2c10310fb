"""The simulated step issues what PyTorch's FSDP and ours do, in their order, and holds no more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import BackwardPrefetch as TorchPrefetch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp import ShardingStrategy as TorchStrategy
from torch.distributed.fsdp import _runtime_utils as fsdp1
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp2
from torch.distributed.fsdp._limiter_utils import _FreeEventQueue

from shardlab.comm import World
from shardlab.fsdp import FSDP, BackwardPrefetch, ShardingStrategy
from shardlab.fsdp.flat_gradient import FlatGradient
from shardlab.fsdp.unit import Unit
from shardlab.proofs.formulas.fsdp import fully_sharded
from shardlab.proofs.schedules.fsdp_step import GUARDS, StepSettings, simulate_step

UNITS = 5
Issued = list[tuple[str, int]]


class Times(torch.autograd.Function):
    """Multiply by a sum of weights, and note when forward and backward run."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, unit: int, issued: Issued) -> Tensor:
        issued.append(("forward", unit))
        ctx.save_for_backward(x, weight)
        ctx.noted = unit, issued
        return x * weight.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        unit, issued = ctx.noted
        issued.append(("backward", unit))
        x, weight = ctx.saved_tensors
        return grad * weight.sum(), (grad * x).sum().expand_as(weight), None, None


class Scale(nn.Module):
    """A unit; its number of weights names it."""

    def __init__(self, unit: int, issued: Issued) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((16 * unit,), 1 / 16 / unit))
        self.unit, self.issued = unit, issued

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = Times.apply(x, self.weight, self.unit, self.issued)  # type: ignore[no-untyped-call]
        return result


def train(model: nn.Module, issued: Issued) -> Issued:
    """Run steps, the first of which are special; return what the last issues."""
    for _ in range(4):
        issued.clear()
        model(torch.ones(3, requires_grad=True)).sum().backward()
    return list(issued)


def note(issued: Issued, target: Any, name: str, kind: str, unit_of: Callable[..., int]) -> Any:
    """Patch a function, so that it notes its kind and unit first; a unit of 0 is not noted."""
    original = getattr(target, name)

    def noting(*args: Any, **kwargs: Any) -> Any:
        if unit := unit_of(*args):
            issued.append((kind, unit))
        return original(*args, **kwargs)

    return patch.object(target, name, noting)


def of_fsdp1(world: World, settings: StepSettings) -> Issued:
    issued: Issued = []
    queued: dict[int, int] = {}
    prefetch = {"pre": TorchPrefetch.BACKWARD_PRE, "post": TorchPrefetch.BACKWARD_POST}
    options: dict[str, Any] = {
        "sharding_strategy": TorchStrategy.FULL_SHARD
        if settings.reshards
        else TorchStrategy.SHARD_GRAD_OP,
        "backward_prefetch": prefetch.get(settings.backward_prefetch),
        "forward_prefetch": settings.forward_prefetch,
        "limit_all_gathers": settings.guard == "limiter",
        "device_id": torch.device("cpu"),
    }
    units = [FullyShardedDataParallel(Scale(n, issued), **options) for n in range(1, UNITS + 1)]
    model = FullyShardedDataParallel(nn.Sequential(*units), **options)
    dequeue, enqueue = _FreeEventQueue.dequeue_if_needed, _FreeEventQueue.enqueue

    def unit_of(handle: Any) -> int:
        return int(handle.flat_param._unpadded_unsharded_size.numel()) // 16

    def noting_enqueue(queue: Any, event: Any) -> None:
        queued[id(event)] = issued[-1][1]
        enqueue(queue, event)

    def noting_dequeue(queue: Any) -> Any:
        if event := dequeue(queue):
            issued.append(("wait", queued[id(event)]))
        return event

    with (
        note(issued, FlatParamHandle, "_all_gather_flat_param", "gather", lambda h, *_: unit_of(h)),
        note(issued, fsdp1, "_reduce_grad", "reduce", lambda _, h: unit_of(h)),
        note(issued, fsdp1, "_reshard", "free", lambda _, h, free: unit_of(h) if free else 0),
        patch.object(_FreeEventQueue, "enqueue", noting_enqueue),
        patch.object(_FreeEventQueue, "dequeue_if_needed", noting_dequeue),
    ):
        return train(model, issued)


def of_fsdp2(world: World, settings: StepSettings) -> Issued:
    issued: Issued = []
    model = nn.Sequential(*(Scale(n, issued) for n in range(1, UNITS + 1)))
    for module in model:
        fully_shard(module, reshard_after_forward=settings.reshards)
    fully_shard(model, reshard_after_forward=settings.reshards)
    if settings.forward_prefetch:
        for module, following in pairwise(model):
            module.set_modules_to_forward_prefetch([following])

    def unit_of(params: Any, *_: Any) -> int:
        return int(params[0]._orig_size.numel()) // 16

    with (
        note(issued, fsdp2, "foreach_all_gather", "gather", unit_of),
        note(issued, fsdp2, "foreach_reduce", "reduce", unit_of),
        note(
            issued, fsdp2.FSDPParamGroup, "_to_sharded", "free",
            lambda group: 0 if group.is_sharded else unit_of(group.fsdp_params),
        ),
    ):  # fmt: skip
        return train(model, issued)


def of_ours(world: World, settings: StepSettings) -> Issued:
    issued: Issued = []
    module = nn.Sequential(*(Scale(n, issued) for n in range(1, UNITS + 1)))
    prefetch = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST}
    model = FSDP(
        module, world.whole, units=list(module), forward_prefetch=settings.forward_prefetch,
        backward_prefetch=prefetch.get(settings.backward_prefetch),
        strategy=ShardingStrategy.FULL_SHARD if settings.reshards
        else ShardingStrategy.SHARD_GRAD_OP,
    )  # fmt: skip

    def unit_of(unit: Any) -> int:
        return int(unit.name or -1) + 1

    with (
        note(issued, Unit, "start_gather", "gather", unit_of),
        note(issued, Unit, "release", "free", unit_of),
        note(
            issued, FlatGradient, "start_reduce", "reduce",
            lambda gradient: int(gradient.flat.name.split(".")[0]) + 1,
        ),
    ):  # fmt: skip
        return train(model, issued)


OURS = {"guard": "computing"}
WAYS: list[tuple[Any, dict[str, Any]]] = [
    *((of_fsdp1, {"backward_prefetch": way}) for way in ("pre", "post", "none")),
    *(
        (of_fsdp1, {"forward_prefetch": True, "backward_prefetch": way})
        for way in ("pre", "post", "none")
    ),
    (of_fsdp1, {"forward_prefetch": True, "guard": "nothing", "reshards": False}),
    (of_fsdp1, {"guard": "nothing"}),
    (of_fsdp1, {"reshards": False}),
    (of_fsdp2, {"guard": "copies"}),
    (of_fsdp2, {"guard": "copies", "reshards": False}),
    (of_fsdp2, {"guard": "copies", "forward_prefetch": True}),
    *((of_ours, {**OURS, "backward_prefetch": way}) for way in ("pre", "post", "none")),
    (of_ours, {**OURS, "forward_prefetch": True}),
    (of_ours, {**OURS, "reshards": False}),
]


@pytest.mark.parametrize(("way", "more"), WAYS)
def test_a_step_issues_what_the_implementation_does(
    pool: Callable[[int], Any], way: Any, more: dict[str, Any]
) -> None:
    settings = StepSettings(units=UNITS, **more)
    simulated = simulate_step(settings).issued
    for issued in pool(2).run(way, settings):
        assert issued == simulated


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("reshards", [True, False])
def test_a_step_has_the_collectives_that_the_formula_counts(guard: str, reshards: bool) -> None:
    step = simulate_step(StepSettings(units=UNITS, guard=guard, reshards=reshards))
    units = [0] + [10] * UNITS  # a root without parameters
    traffic = fully_sharded(units, ranks=2, itemsize=4, reshards_after_forward=reshards)
    kinds = [span.kind for span in step.communication]
    counts = {call.op: count for call, count in traffic.all.items() if call.payload}
    assert counts == {"all_gather": kinds.count("gather"), "reduce_scatter": kinds.count("reduce")}


def test_what_holds_gathers_back_costs_no_time_and_bounds_what_is_whole() -> None:
    steps = {g: simulate_step(StepSettings(units=8, guard=g)) for g in GUARDS}
    assert {g: step.peak("parameters") for g, step in steps.items()} == {
        "limiter": 3, "copies": 3, "computing": 2, "nothing": 16,
    }  # fmt: skip
    assert steps["limiter"].end == steps["copies"].end == steps["nothing"].end == 52
    assert steps["limiter"].exposed == 4  # the first gather and the last reduction
    assert steps["computing"].exposed == 4 + 8 * 2  # and each gather of forward but the first


def test_the_diagram_of_theory_3_is_the_step_of_both_pytorch_versions() -> None:
    for guard in ("limiter", "copies"):
        step = simulate_step(StepSettings(units=3, guard=guard))
        assert [(s.kind, s.unit, s.start) for s in step.communication] == [
            ("gather", 1, 0), ("gather", 2, 2), ("gather", 3, 4), ("gather", 3, 6),
            ("gather", 2, 8), ("reduce", 3, 12), ("gather", 1, 14), ("reduce", 2, 16),
            ("reduce", 1, 20),
        ]  # fmt: skip
