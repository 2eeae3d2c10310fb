"""When units are gathered, held, released and reduced: counted, in collectives and in bytes.

Two ranks suffice. A gather too many, one at the wrong time or one that reads old shards shows here
and not in the parity tests, whose results it would not change, or only sometimes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import CollectiveError, World
from shardlab.fsdp import FSDP, BackwardPrefetch, MixedPrecision, ShardingStrategy
from shardlab.fsdp.life_cycle import IllegalTransition, ParameterState
from shardlab.fsdp.unit import Unit
from shardlab.proofs import formulas
from shardlab.proofs.collective import Traffic
from shardlab.proofs.ledger import Ledger
from tests.shardlab.default_device import on_default_device
from tests.shardlab.fsdp_models import (
    Transformer,
    batch,
    furthest,
    gathered_gradients,
    gathered_parameters,
    train_whole,
    unsharded_bytes,
)
from tests.shardlab.pool import on_ranks

PRE, POST = BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch.BACKWARD_POST
S = ShardingStrategy
Pool = Callable[[int], Any]


def sharded(world: World, **settings: Any) -> FSDP:
    model = Transformer(**settings.pop("model", {}))
    axis = settings.pop("axis", world.whole)
    return FSDP(model, axis, units=model.blocks, **settings)


def step(model: FSDP, rank: int, number: int = 0) -> Tensor:
    loss: Tensor = model(*batch(rank, number))
    loss.backward()
    return loss


# ---------------------------------------------------------------------- what is sent


def traffic(ledger: Ledger) -> Traffic:
    return Traffic(ledger.calls(phase=""), ledger.calls(phase="backward"))


@on_ranks(4, default_device=True)
def test_each_strategy_sends_exactly_what_the_formula_says_with_and_without_accumulation(
    world: World,
) -> None:
    data = batch(world.rank, 0)
    half = world.size // 2
    first = world.rank // half * half
    shard = world.axis("shard", range(first, first + half))
    replicate = world.axis("replicate", range(world.rank % half, world.size, half))
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"strategy": S.FULL_SHARD, "forward_prefetch": True}, {}),
        ({"strategy": S.FULL_SHARD, "backward_prefetch": POST}, {}),
        ({"strategy": S.FULL_SHARD, "backward_prefetch": None}, {}),
        ({"strategy": S.SHARD_GRAD_OP}, {"reshards_after_forward": False}),
        ({"strategy": S.HYBRID_SHARD, "axis": shard, "replicate": replicate},
         {"ranks": half, "replicas": 2}),
        ({"strategy": S.HYBRID_SHARD_ZERO2, "axis": shard, "replicate": replicate},
         {"ranks": half, "replicas": 2, "reshards_after_forward": False}),
        ({"strategy": S.NO_SHARD},
         {"ranks": 1, "replicas": world.size, "reshards_after_forward": False}),
        ({"mixed_precision": MixedPrecision(torch.bfloat16, torch.float32)},
         {"itemsize": 2, "gradient_itemsize": 4}),
    ]  # fmt: skip
    wrong = []
    for settings, formula in cases:
        model = sharded(world, **settings)
        units = [
            formulas.flat_elements(
                [leaf.numel() for leaf in flat.leaves], flat.layout.size, alignment=8,
                aligned_end=True,
            )
            for flat in model.flats
        ]  # fmt: skip
        expected: dict[str, Any] = {"ranks": world.size, "itemsize": 8, **formula}
        step(model, world.rank)  # the first records the order and fetches nothing ahead in forward
        for micro, synced in ((1, [0]), (3, [0, 2])):
            with Ledger() as ledger:
                for number in range(micro):
                    if number in synced:
                        model(*data).backward()
                    else:
                        with model.no_sync():
                            model(*data).backward()
            expected_traffic = formulas.fully_sharded(
                units, **expected, micro_batches=micro, synced=synced
            )
            if traffic(ledger) != expected_traffic:
                wrong.append(
                    f"{settings} {micro=} {synced=}:\n{ledger.summary()}\n{expected_traffic}"
                )
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------------- what is held


class Peak:
    """The most bytes that full parameters, and gradients over the whole axis, held at once."""

    def __init__(self) -> None:
        self.parameters = self.gradients = 0

    def look(self, model: FSDP) -> None:
        full = unsharded_bytes(model.flats)
        buffers = (g._buffer_F for unit in model.units for g in unit.gradients)
        grads = sum(buffer.nbytes for buffer in buffers if buffer is not None)
        self.parameters = max(self.parameters, full)
        self.gradients = max(self.gradients, grads)


@contextmanager
def watched(model: FSDP) -> Iterator[Peak]:
    """Look after every gather that starts, and whenever a parameter's gradient arrives."""
    peak = Peak()
    start = Unit.start_gather

    def start_and_look(unit: Unit) -> None:
        start(unit)
        peak.look(model)

    hooks = [
        leaf.register_post_accumulate_grad_hook(lambda _: peak.look(model))
        for flat in model.flats
        for leaf in flat.leaves
        if leaf.requires_grad
    ]
    Unit.start_gather = start_and_look  # type: ignore[method-assign]
    try:
        yield peak
    finally:
        Unit.start_gather = start  # type: ignore[method-assign]
        for hook in hooks:
            hook.remove()


@on_ranks(2, default_device=True)
def test_the_peak_of_full_parameters_and_gradients_equals_the_arithmetic(world: World) -> None:
    layers = 5
    cases: list[tuple[dict[str, Any], int, int]] = [  # settings, units beside the root, itemsize
        ({"backward_prefetch": None}, 1, 8),
        ({"backward_prefetch": POST}, 1, 8),
        ({"backward_prefetch": PRE}, 2, 8),
        ({"backward_prefetch": None, "forward_prefetch": True}, 2, 8),
        ({"strategy": S.SHARD_GRAD_OP, "forward_prefetch": True}, layers, 8),
        ({"strategy": S.NO_SHARD, "mixed_precision": MixedPrecision(torch.bfloat16)}, layers, 2),
        ({"mixed_precision": MixedPrecision(torch.bfloat16)}, 2, 2),
    ]
    for settings, units, itemsize in cases:
        model = sharded(world, model={"layers": layers}, **settings)
        root, block = (unit.flats[0].layout.numel for unit in model.units[:2])
        for number in range(2):
            with watched(model) as peak:
                step(model, world.rank, number)
            forward_knows_the_order = number == 1
            if forward_knows_the_order or not settings.get("forward_prefetch"):
                assert peak.parameters == (root + units * block) * itemsize, settings
            assert unsharded_bytes(model.flats) == 0
            if settings.get("strategy") is not S.NO_SHARD:
                # The root's gradient fills from the head to the embedding; beside it one unit
                # fills while the one before is reduced.
                assert peak.gradients == (root + 2 * block) * itemsize, settings
            assert all(g._buffer_F is None for unit in model.units for g in unit.gradients)


@on_ranks(2, default_device=True)
def test_without_sharding_the_shard_itself_is_computed_with(world: World) -> None:
    model = sharded(world, strategy=S.NO_SHARD)
    with watched(model) as peak:
        step(model, world.rank)
    assert peak.parameters == 0
    for flat in model.flats:
        assert flat.full_F.data_ptr() == flat.shard_f.data_ptr()


# ---------------------------------------------------------------------- what may not happen


@on_ranks(2, default_device=True)
def test_an_illegal_gather_or_release_is_refused_before_anything_is_sent_or_freed(
    world: World,
) -> None:
    model = sharded(world)
    unit = model.units[1]
    with pytest.raises(IllegalTransition, match=r"unit blocks.0 is SHARDED and can't release"):
        unit.release()
    unit.start_gather()
    with pytest.raises(IllegalTransition, match="in flight already"), Ledger() as ledger:
        unit.start_gather()
    assert not ledger.entries
    with pytest.raises(IllegalTransition, match="the all-gather still writes there"):
        unit.release()
    unit.finish_gather()
    with pytest.raises(IllegalTransition, match="holds its full parameters already"):
        unit.start_gather()
    unit.release()
    assert unsharded_bytes(unit.flats) == 0


@on_ranks(2, default_device=True)
def test_a_forward_after_the_optimizer_step_never_sees_parameters_gathered_before_it(
    world: World,
) -> None:
    data = batch(world.rank, 0)
    for strategy in (S.FULL_SHARD, S.SHARD_GRAD_OP, S.NO_SHARD):
        for fused in (False, True):  # a fused step leaves no trace in version counters
            model, whole = sharded(world, strategy=strategy), Transformer()
            ours = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
            whole_optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
            model(*data).backward()
            for rank in range(world.size):
                (whole(*batch(rank, 0)) / world.size).backward()
            model(*data)  # kept full by the strategy, and no backward follows
            ours.step()
            whole_optimizer.step()
            assert abs(model(*data).item() - whole(*data).item()) < 1e-13
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    assert abs(model(*data).item() - whole(*data).item()) < 1e-13
                assert all(unit.state is ParameterState.SHARDED for unit in model.units)


@on_ranks(2, default_device=True)
def test_full_parameters_that_are_kept_are_gathered_anew_once_the_shards_are_written_to(
    world: World,
) -> None:
    data = batch(world.rank, 0)
    model = sharded(world, strategy=S.SHARD_GRAD_OP)
    with model.no_sync():
        model(*data).backward()
        assert all(unit.state is ParameterState.UNSHARDED for unit in model.units)
        for parameter in model.parameters():
            with torch.no_grad():
                parameter.mul_(0.5)
        loss = model(*data).item()
    with torch.no_grad():
        assert loss == model(*data).item()
    with model.gathered():
        for parameter in model.parameters():
            with torch.no_grad():
                parameter.mul_(2.0)
        doubled = model(*data).item()
    assert doubled == sharded(world)(*data).item()


@on_ranks(2, default_device=True)
def test_an_optimizer_step_between_forward_and_backward_is_refused(world: World) -> None:
    for strategy in (S.FULL_SHARD, S.SHARD_GRAD_OP, S.NO_SHARD):
        model = sharded(world, strategy=strategy)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, world.rank)
        loss = model(*batch(world.rank, 1))
        optimizer.step()
        with pytest.raises(RuntimeError, match="changed between forward and backward"):
            loss.backward()


# ---------------------------------------------------------------------- the order of forward


class Reordered(Transformer):
    """Runs its blocks in the order that `path` says, which may leave some out or repeat some."""

    path: list[int] | None = None

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        blocks = self.blocks
        if self.path is not None:
            self.blocks = nn.ModuleList(blocks[i] for i in self.path)
        loss = super().forward(tokens, targets)
        self.blocks = blocks
        return loss


def gathers(world: World, model: FSDP, path: list[int], number: int) -> tuple[int, int]:
    model.module.path = path
    with Ledger() as ledger:
        step(model, world.rank, number)
    return ledger.total("all_gather", phase="").count, ledger.total("all_gather").count


@on_ranks(2, default_device=True)
def test_a_changed_order_costs_the_gather_made_in_vain_and_becomes_the_expected_one(
    world: World,
) -> None:
    module, whole = Reordered(), Reordered()
    model = FSDP(module, world.whole, units=module.blocks, forward_prefetch=True)
    errors, paths = [], [[0, 1, 2], [0, 1, 2], [2, 1, 0], [2, 1, 0], [2, 1], [0, 1, 0, 2]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = [gathers(world, model, path, n) for n, path in enumerate(paths)]
    # Forward gathers the root and each block; where the order changes, block 0 (then block 2) was
    # prefetched for nothing. Where [2, 1] ends early, block 0 was.
    assert [forward for forward, _ in counts] == [4, 4, 5, 4, 4, 6]
    assert [both - forward for forward, both in counts] == [3, 3, 3, 3, 2, 3]
    assert len([w for w in caught if "another order" in str(w.message)]) == 1
    assert model.runtime.order.changes == 3
    assert all(unit.state is ParameterState.SHARDED for unit in model.units)
    for number, path in enumerate(paths):
        whole.path = path
        for rank in range(world.size):
            (whole(*batch(rank, number)) / world.size).backward()
    expected = {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}
    errors.append(furthest(gathered_gradients(model), expected))
    assert max(errors) < 1e-12


@on_default_device
def other_order(world: World, checked: bool, path: list[int]) -> str:
    """Rank 1 runs its blocks backwards: in the first forward, or where all is checked later."""
    world = World(check=checked, device=world.device)
    module = Reordered()
    model = FSDP(module, world.whole, units=module.blocks)
    if checked:
        step(model, world.rank)
    module.path = path if world.rank == 1 else None
    with pytest.raises(CollectiveError) as caught:
        step(model, world.rank)
    return str(caught.value)


def test_ranks_that_run_their_units_in_other_orders_are_told_so_before_backward(pool: Pool) -> None:
    first, second = pool(2).run(other_order, False, [2, 1, 0])
    assert "ranks [1] of the world axis run other units of FSDP" in first
    assert "rank 0, which ran (root), and would then run unit blocks.0" in first
    assert "rank 1, which ran (root), and would then run unit blocks.2" in second
    first, second = pool(2).run(other_order, True, [0, 2, 1])
    assert "what this one does, gather blocks.1.flat_shard" in first
    assert "what this one does, gather blocks.2.flat_shard" in second


@on_ranks(2, default_device=True)
def test_a_gather_starts_one_unit_before_its_use(world: World) -> None:
    """The order in which gathers start, against that in which units are needed."""
    model = sharded(world, forward_prefetch=True)
    step(model, world.rank)
    events: list[str] = []
    start, finish = Unit.start_gather, Unit.finish_gather

    def note(what: str, unit: Unit) -> None:
        events.append(f"{what} {unit.name[-1:] or 'r'}")

    def started(unit: Unit) -> None:
        note("+", unit)
        start(unit)

    def finished(unit: Unit) -> None:
        note("=", unit)
        finish(unit)

    Unit.start_gather, Unit.finish_gather = started, finished  # type: ignore[method-assign]
    try:
        loss = model(*batch(world.rank, 1))
        forward, events = events, []
        assert forward == ["+ r", "+ 0", "= r", "+ 1", "= 0", "+ 2", "= 1", "= 2"]
        loss.backward()
        assert events == ["+ 2", "+ 1", "= 2", "+ 0", "= 1", "= 0"]
    finally:
        Unit.start_gather, Unit.finish_gather = start, finish  # type: ignore[method-assign]


# ---------------------------------------------------------------------- after a fault


class FaultError(Exception):
    pass


def raise_fault(_: Tensor) -> None:
    raise FaultError


@on_ranks(2, default_device=True)
def test_after_a_forward_or_backward_that_raised_training_goes_on_as_if_it_had_not_been(
    world: World,
) -> None:
    whole = Transformer()
    train_whole(whole, world.size, "sgd", steps=2)
    module = Transformer()
    model = FSDP(module, world.whole, units=module.blocks, forward_prefetch=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(2):
        # A backward that breaks off in block 1, after block 2 was reduced …
        leaf = model.units[2].flats[0].leaves[3]
        handle = leaf.register_hook(raise_fault)
        with pytest.raises(FaultError):
            step(model, world.rank, number)
        handle.remove()
        # … and a forward that does, on every rank alike.
        handle = model.units[2].module.register_forward_pre_hook(lambda *_: raise_fault(_[0]))
        with pytest.raises(FaultError):
            model(*batch(world.rank, number))
        handle.remove()
        model.zero_grad()
        step(model, world.rank, number)
        optimizer.step()
        optimizer.zero_grad()
    assert unsharded_bytes(model.flats) == 0
    errors = [furthest(gathered_parameters(model), dict(whole.named_parameters()))]
    assert max(errors) < 1e-12
