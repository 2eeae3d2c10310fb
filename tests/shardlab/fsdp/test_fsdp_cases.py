"""FSDP on models and loops that are not the plain case: each equals the unsharded model in fp64.

Frozen and tied parameters, units that run twice or not at all, activation checkpointing, several
backwards, evaluation in between, odd sizes, parameter groups, clipping.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP, BackwardPrefetch, ShardingStrategy
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.proofs.ledger import Ledger
from tests.shardlab.default_device import on_default_device
from tests.shardlab.fsdp.test_fsdp_runtime import watched
from tests.shardlab.fsdp_models import (
    Block,
    Transformer,
    batch,
    furthest,
    gathered_gradients,
    gathered_parameters,
    train_sharded,
    train_whole,
    unsharded_bytes,
)
from tests.shardlab.pool import on_ranks

Pool = Callable[[int], Any]
S = ShardingStrategy
TOLERANCE = 1e-12


def gradients_of(whole: nn.Module, size: int, steps: tuple[int, ...] = (0,)) -> dict[str, Tensor]:
    for step in steps:
        for rank in range(size):
            (whole(*batch(rank, step)) / size).backward()
    return {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}


def compare(world: World, make: Callable[[], Any], **settings: Any) -> FSDP:
    """One forward and backward; every gradient equals the unsharded model's. Returns the FSDP."""
    module = make()
    model = FSDP(module, world.whole, units=module.blocks, **settings)
    for _ in range(2):  # the second fetches ahead
        model.zero_grad()
        loss = model(*batch(world.rank, 0))
        loss.backward()
    whole = make()
    expected = gradients_of(whole, world.size)
    assert abs(loss.item() - whole(*batch(world.rank, 0)).item()) < TOLERANCE
    actual = gathered_gradients(model)
    assert set(actual) >= set(expected)
    for name in set(actual) - set(expected):  # without a gradient there; zero here
        assert not actual[name].any(), name
    assert furthest(actual, expected) < TOLERANCE
    assert unsharded_bytes(model.flats) == 0 or settings.get("strategy") is S.NO_SHARD
    return model


# ---------------------------------------------------------------------- frozen parameters


def freeze(frozen: str) -> Transformer:
    module = Transformer(layers=5)
    for name, parameter in module.named_parameters():
        if frozen == "adapters":  # all but one matrix in the last block
            parameter.requires_grad_(name == "blocks.4.up.weight")
        elif frozen == "mixed":  # parts of every unit, the embedding too
            parameter.requires_grad_("norm" in name or "down" in name)
        elif frozen == "below":  # what trains has its gradient before what is frozen is needed
            parameter.requires_grad_("down" in name)
        elif frozen == "backbone":
            parameter.requires_grad_(not name.startswith("blocks.") or ".4." in name)
    return module


@on_default_device
def frozen(world: World) -> None:
    for kind in ("adapters", "mixed", "below", "backbone"):
        for strategy in (S.FULL_SHARD, S.SHARD_GRAD_OP, S.NO_SHARD):
            compare(world, lambda kind=kind: freeze(kind), strategy=strategy, forward_prefetch=True)


def test_frozen_parameters_get_no_gradient_and_the_others_theirs(pool: Pool) -> None:
    pool(2).run(frozen)


@on_ranks(2, default_device=True)
def test_adamw_steps_leave_frozen_parameters_where_they_were(world: World) -> None:
    whole, module = freeze("mixed"), freeze("mixed")
    train_whole(whole, world.size, "adamw")
    model = FSDP(module, world.whole, units=module.blocks)
    with Ledger() as ledger:
        train_sharded(model, world.rank, "adamw", steps=1, look=())
    assert ledger.total("reduce_scatter").count == len(model.units)  # none for what is frozen
    assert ledger.total("all_gather").count == 2 * (1 + 2 * len(module.blocks))
    model = FSDP(module := freeze("mixed"), world.whole, units=module.blocks)
    train_sharded(model, world.rank, "adamw")
    assert furthest(gathered_parameters(model), dict(whole.named_parameters())) < TOLERANCE


@on_ranks(2, default_device=True)
def test_a_frozen_unit_is_released_as_soon_as_its_inputs_have_their_gradients(world: World) -> None:
    module = freeze("backbone")
    module.positions.requires_grad_(True)  # so that every block has an input that wants a gradient
    model = FSDP(module, world.whole, units=module.blocks)
    with watched(model) as peak:
        model(*batch(world.rank, 0)).backward()
    root, block = (sum(f.layout.numel for f in unit.flats) for unit in model.units[:2])
    assert peak.parameters == (root + 2 * block) * 8


@on_ranks(2, default_device=True)
def test_a_unit_can_be_frozen_for_a_while_by_its_shard(world: World) -> None:
    module = Transformer()
    model = FSDP(module, world.whole, units=module.blocks)
    model.units[1].flats[0].shard_f.requires_grad_(False)
    model(*batch(world.rank, 0)).backward()
    assert model.units[1].flats[0].shard_f.grad is None
    assert model.units[2].flats[0].shard_f.grad is not None
    model.units[1].flats[0].shard_f.requires_grad_(True)
    model.zero_grad()
    model(*batch(world.rank, 0)).backward()
    whole = Transformer()
    assert furthest(gathered_gradients(model), gradients_of(whole, world.size)) < TOLERANCE


@on_ranks(2, default_device=True)
def test_a_unit_that_was_frozen_from_the_first_can_not_be_thawed_unseen(world: World) -> None:
    model = FSDP(module := freeze("backbone"), world.whole, units=module.blocks)
    model(*batch(world.rank, 0)).backward()
    model.units[1].flats[0].shard_f.requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"blocks\.0\.flat_shard was frozen when FSDP was made"):
        model(*batch(world.rank, 1))


@on_ranks(2, default_device=True)
def test_a_gradient_that_is_held_and_given_up_is_in_no_later_one(world: World) -> None:
    model = FSDP(module := Transformer(), world.whole, units=module.blocks)
    with model.no_sync():
        model(*batch(world.rank, 7)).backward()
    model.zero_grad()
    model(*batch(world.rank, 0)).backward()
    expected = gradients_of(Transformer(), world.size)
    assert furthest(gathered_gradients(model), expected) < TOLERANCE


# ---------------------------------------------------------------------- tied parameters


@on_ranks(2, default_device=True)
def test_a_tie_across_units_is_refused_and_one_within_a_unit_is_one_gradient(world: World) -> None:
    module = Transformer()
    module.blocks[2].up.weight = module.blocks[1].up.weight
    with pytest.raises(
        ValueError, match=r"blocks\.1\.up\.weight and blocks\.2\.up\.weight are one"
    ):
        FSDP(module, world.whole, units=module.blocks)
    compare(world, tied_within)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(8, 2).double(), Block(8, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def tied_within() -> Transformer:
    module = Transformer()
    torch.manual_seed(3)
    pair = Pair()
    pair.second.up.weight = pair.first.up.weight
    module.blocks[1] = pair
    return module


# ---------------------------------------------------------------------- units used otherwise


class Path(Transformer):
    """Its blocks in another order than they stand, some twice, some never."""

    def __init__(self, path: list[int], keeps: bool = False) -> None:
        super().__init__()
        self.path, self.keeps, self.kept = path, keeps, []

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        self.kept = []
        for i in self.path:
            y = self.blocks[i](x)
            if self.keeps and i == 1:  # its output is made, and goes nowhere
                self.kept.append(y)
            else:
                x = y
        logits = self.head(self.norm(x)) * self.scale
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@on_ranks(2, default_device=True)
def test_units_that_run_twice_or_never_are_reduced_once_or_not_at_all(world: World) -> None:
    prefetches = [None, BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch.BACKWARD_POST]
    for path in ([0, 0, 0], [2, 1], [1, 0, 2, 0, 1]):
        for strategy in (S.FULL_SHARD, S.SHARD_GRAD_OP):
            for prefetch in prefetches if strategy is S.FULL_SHARD else prefetches[1:2]:
                model = compare(
                    world, lambda path=path: Path(path), strategy=strategy,
                    backward_prefetch=prefetch, forward_prefetch=prefetch is not None,
                )  # fmt: skip
                with Ledger() as ledger:
                    model(*batch(world.rank, 0)).backward()
                used = len(set(path))
                reductions = ledger.total("reduce_scatter").count
                assert reductions == used + 1, f"{path}: each used unit once, and the root"
                if strategy is S.FULL_SHARD:
                    assert ledger.total("all_gather").count <= 1 + len(path) + used + (used < 3)
    compare(world, lambda: Path([0, 1, 2], keeps=True))


class UpDown(nn.Module):
    def __init__(self, block: Any) -> None:
        super().__init__()
        self.up, self.down, self.unused = block.up, block.down, block.out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x))


@on_ranks(2, default_device=True)
def test_a_parameter_that_is_not_used_counts_as_zero_and_its_unit_is_reduced(world: World) -> None:
    def make() -> Transformer:
        module = Transformer()
        for i, block in enumerate(module.blocks):
            module.blocks[i] = UpDown(block)
        return module

    compare(world, make)


@dataclass
class Result:
    hidden: Tensor
    note: str


class Opaque:
    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


class Wrapped(nn.Module):
    """Takes what another returns, and returns its output inside something."""

    def __init__(self, block: nn.Module, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.block, self.wrap = block, wrap

    def forward(self, x: Any) -> Any:
        x = x["x"][0] if isinstance(x, dict) else getattr(x, "hidden", x)
        return self.wrap(self.block(x))


def wrapped(last: Callable[[Tensor], Any]) -> Transformer:
    module = Transformer()
    kinds = [lambda y: {"x": (y, 1)}, lambda y: Result(y, "note"), last]
    for i, wrap in enumerate(kinds):
        module.blocks[i] = Wrapped(module.blocks[i], wrap)
    return module


@on_ranks(2, default_device=True)
def test_outputs_may_be_mappings_and_dataclasses_but_not_opaque(world: World) -> None:
    compare(world, lambda: wrapped(lambda y: y))
    module = wrapped(Opaque)
    model = FSDP(module, world.whole, units=module.blocks)
    with pytest.raises(RuntimeError, match=r"unit blocks\.2 ran with gradients enabled"):
        model(*batch(world.rank, 0))


# ---------------------------------------------------------------------- activation checkpointing


class Checkpointed(Transformer):
    def __init__(self, where: str, reentrant: bool) -> None:
        super().__init__()
        self.where, self.reentrant = where, reentrant
        if where == "inside":
            for i, block in enumerate(self.blocks):
                self.blocks[i] = Inside(block, reentrant)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        if self.where == "two":
            x = checkpoint(self._two, x, use_reentrant=self.reentrant)
        else:
            for block in self.blocks:
                if self.where == "unit":
                    x = checkpoint(block, x, use_reentrant=self.reentrant)
                else:
                    x = block(x)
        logits = self.head(self.norm(x)) * self.scale
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def _two(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Inside(nn.Module):
    def __init__(self, block: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=self.reentrant)  # type: ignore[no-any-return]


@on_ranks(2, default_device=True)
def test_activation_checkpointing_of_either_kind_adds_no_gather_and_no_reduction(
    world: World,
) -> None:
    for reentrant in (False, True):
        for where in ("unit", "inside", "two"):
            for strategy in (S.FULL_SHARD, S.SHARD_GRAD_OP):
                model = compare(
                    world, lambda w=where, r=reentrant: Checkpointed(w, r), strategy=strategy,
                    forward_prefetch=True,
                )  # fmt: skip
                with Ledger() as ledger:
                    model(*batch(world.rank, 0)).backward()
                if strategy is S.FULL_SHARD:
                    assert ledger.total("all_gather").count == 1 + 2 * 3, (where, reentrant)
                    assert ledger.total("reduce_scatter").count == 4
    module = Transformer()
    model = FSDP(module, world.whole, units=module.blocks)
    checkpoint(model, *batch(world.rank, 0), use_reentrant=False).backward()  # all of it
    expected = gradients_of(Transformer(), world.size)
    assert furthest(gathered_gradients(model), expected) < TOLERANCE


# ---------------------------------------------------------------------- several backwards


@on_ranks(2, default_device=True)
def test_backwards_may_follow_several_forwards_or_repeat(world: World) -> None:
    data, more = batch(world.rank, 0), batch(world.rank, 1)
    whole = Transformer()
    expected = gradients_of(whole, world.size, (0, 1))
    for strategy in (S.FULL_SHARD, S.SHARD_GRAD_OP, S.NO_SHARD):
        module = Transformer()
        model = FSDP(module, world.whole, units=module.blocks, strategy=strategy)
        first, two = model(*data), model(*more)  # as pipelines do: two forwards, then two backwards
        first.backward()
        two.backward()
        assert furthest(gathered_gradients(model), expected) < TOLERANCE
        model.zero_grad()
        (model(*data) + model(*more)).backward()
        assert furthest(gathered_gradients(model), expected) < TOLERANCE
        model.zero_grad()
        first = model(*data)
        first.backward(retain_graph=True)
        first.backward()
        model(*more).backward()
        model(*more).backward()
        twice = {name: 2 * grad for name, grad in expected.items()}
        assert furthest(gathered_gradients(model), twice) < TOLERANCE
        assert unsharded_bytes(model.flats) == 0


@on_ranks(2, default_device=True)
def test_a_second_backward_finds_frozen_parameters_too(world: World) -> None:
    whole, module = freeze("below"), freeze("below")
    model = FSDP(module, world.whole, units=module.blocks)
    loss = model(*batch(world.rank, 0))
    loss.backward(retain_graph=True)
    loss.backward()
    expected = {name: 2 * grad for name, grad in gradients_of(whole, world.size).items()}
    assert furthest(gathered_gradients(model), expected) < TOLERANCE


@on_ranks(2, default_device=True)
def test_a_gradient_for_the_input_alone_reduces_nothing_and_leaves_nothing_full(
    world: World,
) -> None:
    """A gradient for an input alone reads every unit and reduces none."""
    block = Block(8, 2).double()
    model = FSDP(nn.Sequential(block), world.whole, units=[block])
    x = torch.ones(1, 3, 8, dtype=torch.float64, requires_grad=True)
    with Ledger() as ledger:
        (grad,) = torch.autograd.grad(model(x).sum(), x)
    assert unsharded_bytes(model.flats) == 0
    with model.gathered():
        (expected,) = torch.autograd.grad(model(x).sum(), x)
    assert torch.equal(grad, expected)
    assert ledger.total("reduce_scatter").count == 0
    assert all(parameter.grad is None for parameter in model.parameters())


# ---------------------------------------------------------------------- evaluation


@on_ranks(2, default_device=True)
def test_gathered_holds_all_parameters_for_reading_and_writes_none_back(world: World) -> None:
    module = Transformer()
    model = FSDP(module, world.whole, units=module.blocks)
    with pytest.raises(RuntimeError, match=r"head\.weight is sharded|embedding\.weight is sharded"):
        module.head(torch.zeros(8, dtype=torch.float64))
    whole = Transformer()
    with model.gathered(), torch.no_grad():
        assert torch.equal(module.blocks[1].up.weight, whole.blocks[1].up.weight)
        with Ledger() as ledger:
            model(*batch(world.rank, 0))
        assert not ledger.entries
        module.blocks[1].up.bias.zero_()
    again = gathered_parameters(model)
    assert torch.equal(again["blocks.1.up.bias"], whole.blocks[1].up.bias)


# ---------------------------------------------------------------------- sizes, norm


class Odd(nn.Module):
    """Parameters of one element, of none, without dimensions, and not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(1, 1).double(), nn.Linear(1, 3).double()])
        self.scale = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.empty = nn.Parameter(torch.zeros(0, 2, dtype=torch.float64))
        turned = torch.arange(6, dtype=torch.float64).view(2, 3).t()
        self.turned = nn.Parameter(turned)
        with torch.no_grad():
            for parameter in self.blocks.parameters():
                parameter.fill_(0.3)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.blocks[1](self.blocks[0](tokens.double().mean().view(1, 1)))
        x = (x @ self.turned) * self.scale + self.empty.sum()
        # A bias' gradient comes expanded, a transposed weight's transposed.
        return (x.expand(4, 2).t() * targets.double().mean()).sum()


@pytest.mark.parametrize("size", [2, 8])
@on_ranks("size", default_device=True)
def test_parameters_smaller_than_the_axis_are_padded_and_right(world: World) -> None:
    compare(world, Odd)


@on_ranks(4, default_device=True)
def test_clipping_counts_every_parameter_once_whatever_the_strategy(world: World) -> None:
    whole = Transformer()
    gradients_of(whole, world.size)
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
    clipped = {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}
    half = world.size // 2
    first = world.rank // half * half
    hybrid = {
        "axis": world.axis("shard", range(first, first + half)),
        "replicate": world.axis("replicate", range(world.rank % half, world.size, half)),
    }
    for strategy in (S.FULL_SHARD, S.NO_SHARD, S.HYBRID_SHARD):
        module = Transformer()
        axes: dict[str, Any] = hybrid if strategy.is_hybrid else {"axis": world.whole}
        model = FSDP(module, **axes, units=module.blocks, strategy=strategy)
        model(*batch(world.rank, 0)).backward()
        total_norm = model.clip_grad_norm_(0.1)
        assert abs(total_norm - expected) / expected < TOLERANCE
        assert furthest(gathered_gradients(model), clipped) < TOLERANCE
        names = {name for name, _ in model.local_parameters()}
        assert names <= set(gathered_gradients(model))
        if strategy is not S.FULL_SHARD:
            with pytest.raises(ValueError, match="hold the same gradients, each of which would"):
                model.clip_grad_norm_(0.1, axis=world.whole)


@on_ranks(4, default_device=True)
def test_clipping_beside_tensor_parallelism_counts_what_no_tensor_rank_cuts_once(
    world: World,
) -> None:
    config = GPTConfig(layers=1, hidden=8, heads=4, vocab=13, sequence=4, dtype=torch.float64)
    grid, tokens = Grid(world=world, tensor=2), torch.arange(8).view(2, 4)
    whole = GPT(config, tensor=Axis.alone(), device=world.device)
    whole.loss(whole(tokens), tokens).backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
    module = GPT(config, tensor=grid.tensor, device=world.device)
    model = FSDP(module, grid.data, units=module.layers.values())
    module.loss(model(tokens), tokens).backward()
    norm = model.clip_grad_norm_(1.0, axis=grid.axis("tensor", "data"), tensor=grid.tensor)
    assert abs(norm - expected) / expected < TOLERANCE


@on_ranks(2, default_device=True)
def test_what_can_not_be_sharded_is_refused_with_what_to_do(world: World) -> None:
    module = Transformer()
    with pytest.raises(ValueError, match="are not modules of the model"):
        FSDP(module, world.whole, units=[nn.Linear(1, 1)])
    model = FSDP(module, world.whole, units=module.blocks)
    with pytest.raises(RuntimeError, match="copy the module before it is wrapped"):
        copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="move or cast the model before"):
        model.to(torch.float32)
    with pytest.raises(ValueError, match="holds an FSDP already"):
        FSDP(nn.Sequential(model), world.whole)
