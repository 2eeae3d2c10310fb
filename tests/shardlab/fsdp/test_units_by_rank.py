"""Ranks whose data decide which units and parameters they use: the same gradients, or an error.

If `test_parameters_…` alone fails, look at the order of reductions and gathers (`backward.py`); if
`test_ranks_…` fails, at the comparison of orders (`gathers.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import CollectiveError, World
from shardlab.fsdp import FSDP, BackwardPrefetch, ShardingStrategy
from shardlab.fsdp.life_cycle import ParameterState
from tests.shardlab.default_device import on_default_device
from tests.shardlab.difference import random_like
from tests.shardlab.fsdp.test_fsdp_runtime import watched
from tests.shardlab.fsdp_models import gathered_gradients
from tests.shardlab.pool import on_ranks

HIDDEN, STEPS = 6, 3


class Mixture(nn.Module):
    """Four units of one size, each a linear with two adapters; the input says what counts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleList(Adapted() for _ in range(4))
        self.head = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, units: list[int], adapters: list[int], order: list[int]) -> Tensor:
        """Run the units of `order`; the loss depends on `units` alone."""
        for number in order:
            y = self.experts[number](x, adapters)
            x = x + (y if number in units else y.detach())
        return self.head(x)


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(HIDDEN, HIDDEN)
        self.adapters = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))

    def forward(self, x: Tensor, adapters: list[int]) -> Tensor:
        """Return the linear's output, with that of the adapters in use."""
        y: Tensor = self.linear(x).tanh()
        for number in adapters:
            y = y + self.adapters[number](y)
        return y


# What a rank's loss depends on, by step and rank: units, adapters.
ALL, BOTH = [0, 1, 2, 3], [0, 1]
USES = {
    "adapters": [((ALL, [0]), (ALL, [1])), ((ALL, BOTH), (ALL, [])), ((ALL, []), (ALL, BOTH))],
    "units": [((ALL, BOTH), ([0, 2], BOTH)), (([3], BOTH), ([0], BOTH)), (([], BOTH), (ALL, [1]))],
}


def batch(step: int, rank: int) -> Tensor:
    return random_like(3, HIDDEN, seed=10 * step + rank)


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.parametrize("uses", USES)
@pytest.mark.parametrize("prefetch", ["BACKWARD_PRE", "BACKWARD_POST", None])
@on_ranks(2, default_device=True)
def test_parameters_that_some_ranks_do_not_use_count_as_zero_there(
    world: World, uses: str, strategy: str, prefetch: str | None
) -> None:
    wrapped, alone = Mixture().double(), Mixture().double()
    model = FSDP(
        wrapped, world.whole, units=wrapped.experts, strategy=ShardingStrategy[strategy],
        backward_prefetch=BackwardPrefetch[prefetch] if prefetch else None,
    )  # fmt: skip
    for step in range(STEPS):
        units, adapters = USES[uses][step][world.rank]
        model(batch(step, world.rank), units, adapters, ALL).square().sum().backward()
        alone.zero_grad()
        for rank in range(world.size):
            (alone(batch(step, rank), *USES[uses][step][rank], ALL).square().sum() / 2).backward()
        gradients = gathered_gradients(model)
        for name, parameter in alone.named_parameters():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(gradients[name], grad, rtol=1e-12, atol=1e-12, msg=name)
        model.zero_grad()


@on_ranks(2, default_device=True)
def test_a_unit_that_only_the_other_rank_uses_is_released_before_the_next_is_gathered(
    world: World,
) -> None:
    wrapped = Mixture().double()
    model = FSDP(wrapped, world.whole, units=wrapped.experts, backward_prefetch=None)
    with watched(model) as peak:
        units = ALL if world.rank == 0 else []
        model(batch(0, world.rank), units, BOTH, ALL).square().sum().backward()
    root, expert = (unit.flats[0].layout.numel for unit in model.units[:2])
    assert peak.parameters == (root + expert) * 8


@pytest.mark.filterwarnings("ignore:this forward ran its units in another order")
@on_ranks(2, default_device=True)
def test_a_rank_that_leaves_the_order_alone_is_told_before_anything_mixes(world: World) -> None:
    """In the second step rank 1 runs the units in another order."""
    world = World(device=world.device, timeout=6.0)
    wrapped = Mixture().double()
    model = FSDP(wrapped, world.whole, units=wrapped.experts)
    model(batch(0, world.rank), ALL, BOTH, ALL).square().sum().backward()
    if world.rank == 0:
        # As far as both ranks go. In the next gather it would wait for the process group's timeout.
        model.runtime.gathers.unshard(model.units[0])
        return
    with pytest.raises(CollectiveError, match=r"this one would .*rank 0: went on as before"):
        model(batch(1, world.rank), ALL, BOTH, [1, 0, 2, 3])


@on_default_device
def counted_differently(world: World, strategy: str, first: int | None, second: list[int]) -> None:
    """All ranks run `first` units, if any, and then each its own number."""
    wrapped = Mixture().double()
    model = FSDP(wrapped, world.whole, units=wrapped.experts, strategy=ShardingStrategy[strategy])
    if first is not None:
        model(batch(0, world.rank), ALL, BOTH, ALL[:first]).square().sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()  # so units are gathered again
        model.zero_grad()
    with pytest.raises(CollectiveError, match="run other units of FSDP"):
        y = model(batch(1, world.rank), ALL, BOTH, ALL[: second[world.rank]])
        y.square().sum().backward()


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.parametrize("at_once", [True, False])  # as over gloo, as over NCCL
@pytest.mark.filterwarnings("ignore:this forward ran its units in another order")
@on_ranks(2, default_device=True)
def test_ranks_that_part_after_a_common_change_are_told_before_backward_returns(
    world: World, strategy: str, at_once: bool
) -> None:
    """All ranks leave the order at the same place, and part afterwards."""
    wrapped = Mixture().double()
    model = FSDP(wrapped, world.whole, units=wrapped.experts, strategy=ShardingStrategy[strategy])
    model.runtime._compares_at_once = at_once
    model(batch(0, world.rank), ALL, BOTH, ALL).square().sum().backward()
    y = model(batch(1, world.rank), ALL, BOTH, [3, 2, 1, 0] if world.rank else [3, 1, 2, 0])
    with pytest.raises(CollectiveError, match="run other units of FSDP"):
        y.square().sum().backward()


@pytest.mark.parametrize("through", ["norm", "forward"])
@pytest.mark.filterwarnings("ignore:this forward ran its units in another order")
@on_ranks(2, default_device=True)
def test_ranks_that_run_other_units_are_told_before_the_next_step(
    world: World, through: str
) -> None:
    """Where no backward tells, the next step does."""
    wrapped = Mixture().double()
    model = FSDP(wrapped, world.whole, units=wrapped.experts)
    model(batch(0, world.rank), ALL, BOTH, ALL).square().sum().backward()
    model(batch(1, world.rank), ALL, BOTH, [3, 2, 1, 0] if world.rank else [3, 1, 2, 0])
    with pytest.raises(CollectiveError, match="run other units of FSDP"):
        if through == "norm":
            model.clip_grad_norm_(1.0)
        else:
            model(batch(2, world.rank), ALL, BOTH, ALL)


@pytest.mark.parametrize("strategy", ["SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.parametrize(("first", "second"), [(4, [4, 3]), (3, [3, 4]), (4, [2, 3]), (2, [4, 3])])
@pytest.mark.filterwarnings("ignore:this forward ran its units in another order")
def test_ranks_that_run_unequally_many_units_are_told_at_once(
    pool: Any, strategy: str, first: int, second: list[int]
) -> None:
    pool(2).run(counted_differently, strategy, first, second)


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.parametrize("second", [[4, 3], [0, 1]])
def test_ranks_that_run_unequally_many_units_in_the_first_forward_are_told_at_once(
    pool: Any, strategy: str, second: list[int]
) -> None:
    pool(2).run(counted_differently, strategy, None, second)


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.filterwarnings("ignore:this forward ran its units in another order")
@on_ranks(2, default_device=True)
def test_all_ranks_may_run_other_units_in_each_step(world: World, strategy: str) -> None:
    """Every rank runs other units in each step, alike."""
    wrapped, alone = Mixture().double(), Mixture().double()
    model = FSDP(wrapped, world.whole, units=wrapped.experts, strategy=ShardingStrategy[strategy])
    for step, order in enumerate([[0, 1, 2], ALL, [3, 1], [2], [1, 1, 0], [0, 1, 1, 0], ALL]):
        model(batch(step, world.rank), order, BOTH, order).square().sum().backward()
        alone.zero_grad()
        for rank in range(world.size):
            (alone(batch(step, rank), order, BOTH, order).square().sum() / 2).backward()
        gradients = gathered_gradients(model)
        for name, parameter in alone.named_parameters():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            # A unit that never ran has no gradient.
            unit_gradient = gradients.get(name, torch.zeros_like(grad))
            torch.testing.assert_close(unit_gradient, grad, rtol=1e-12, atol=1e-12, msg=name)
        model.zero_grad()
        assert not any(unit.state is ParameterState.UNSHARDED for unit in model.units)
