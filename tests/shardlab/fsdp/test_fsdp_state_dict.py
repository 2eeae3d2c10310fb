"""State dicts: whole ones are the unsharded model's, shards go onto any number of ranks.

Training that is saved, loaded elsewhere and gone on with must end where it would have, with AdamW's
moments: a moment that is lost, or lands beside its parameter, shows after the next step.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.fsdp.full_state import (
    full_optimizer_state,
    full_state_dict,
    load_full_optimizer_state,
    load_full_state_dict,
)
from shardlab.fsdp.sharded_state import load_sharded_state_dict, sharded_state_dict
from shardlab.proofs.ledger import Ledger
from tests.shardlab.fsdp_models import (
    Transformer,
    batch,
    furthest,
    gathered_parameters,
    train_whole,
)
from tests.shardlab.its_device import on_its_device

Pool = Callable[[int], Any]
S = ShardingStrategy
DATA_RANKS = 4  # the data is always that of four ranks, whoever computes on it


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def sharded(axis: Axis, *, fresh: bool = False, **settings: Any) -> FSDP:
    module = Transformer()
    if fresh:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(0.5)
            module.scale.fill_(3.0)
    return FSDP(module, axis, units=settings.pop("units", module.blocks), **settings)


def train(model: FSDP, optimizer: torch.optim.Optimizer, world: World, steps: range) -> None:
    """As `train_whole` does on four ranks, with each rank here on its share of their data."""
    mine = range(world.rank, DATA_RANKS, world.size)
    for step in steps:
        for number, rank in enumerate(mine):
            if number < len(mine) - 1:
                with model.no_sync():
                    (model(*batch(rank, step)) / len(mine)).backward()
            else:
                (model(*batch(rank, step)) / len(mine)).backward()
        optimizer.step()
        optimizer.zero_grad()


def expected() -> dict[str, Tensor]:
    whole = Transformer()
    train_whole(whole, DATA_RANKS, "adamw", steps=6)
    return dict(whole.named_parameters())


# ---------------------------------------------------------------------- whole


@on_its_device
def whole_is_the_models_own(world: World) -> None:
    reference = Transformer()
    for strategy in (S.FULL_SHARD, S.NO_SHARD):
        model = sharded(world.whole, strategy=strategy)
        state = full_state_dict(model)
        assert list(state) == list(reference.state_dict())
        for name, tensor in reference.state_dict().items():
            assert torch.equal(state[name], tensor), name
        assert state["head.weight"] is state["embedding.weight"]
        Transformer().load_state_dict(state)
        kept = full_state_dict(model, keep=world.rank == 0)
        assert bool(kept) == (world.rank == 0)


def test_a_full_state_dict_is_that_of_the_unsharded_model(pool: Pool) -> None:
    pool(2).run(whole_is_the_models_own)


@on_its_device
def save_whole(world: World) -> bytes:
    model = sharded(world.whole)
    optimizer = adamw(model)
    train(model, optimizer, world, range(3))
    content = {"model": full_state_dict(model), "optimizer": full_optimizer_state(model, optimizer)}
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


@on_its_device
def load_whole_and_go_on(world: World, content: bytes) -> list[float]:
    saved = torch.load(io.BytesIO(content), weights_only=True)
    errors = []
    for settings in ({}, {"strategy": S.SHARD_GRAD_OP, "units": ()}, {"strategy": S.NO_SHARD}):
        model = sharded(world.whole, fresh=True, **settings)
        optimizer = torch.optim.AdamW(model.parameters(), lr=99.0, weight_decay=99.0)
        with Ledger() as ledger:
            load_full_state_dict(model, saved["model"])
            load_full_optimizer_state(model, optimizer, saved["optimizer"])
        assert not ledger.entries
        train(model, optimizer, world, range(3, 6))
        errors.append(furthest(gathered_parameters(model), expected()))
    return errors


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 1)])
def test_training_goes_on_from_whole_states_on_other_ranks_units_and_strategies(
    pool: Pool, old: int, new: int
) -> None:
    contents = pool(old).run(save_whole)
    for errors in pool(new).run(load_whole_and_go_on, contents[0]):
        assert max(errors) < 1e-12


# ---------------------------------------------------------------------- shards


@on_its_device
def save_shards(world: World, folder: str) -> None:
    model = sharded(world.whole)
    optimizer = adamw(model)
    train(model, optimizer, world, range(3))
    with Ledger() as ledger:
        torch.save(sharded_state_dict(model, optimizer), Path(folder, f"{world.rank}.pt"))
    assert not ledger.entries


@on_its_device
def load_shards_and_go_on(world: World, folder: str) -> tuple[float, int]:
    read: list[int] = []

    def from_disk(rank: int) -> Any:
        read.append(rank)
        return torch.load(Path(folder, f"{rank}.pt"), weights_only=True)

    model = sharded(world.whole, fresh=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=99.0, weight_decay=99.0)
    with Ledger() as ledger:
        load_sharded_state_dict(model, from_disk, optimizer)
    assert not ledger.entries
    assert len(read) == len(set(read))
    assert model.module.scale == 1.0
    train(model, optimizer, world, range(3, 6))
    return furthest(gathered_parameters(model), expected()), len(read)


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 2), (4, 1), (1, 4)])
def test_training_goes_on_from_shards_on_another_number_of_ranks(
    pool: Pool, tmp_path: Path, old: int, new: int
) -> None:
    pool(old).run(save_shards, str(tmp_path))
    for error, read in pool(new).run(load_shards_and_go_on, str(tmp_path)):
        assert error < 1e-12
        assert read <= -(-old // new) + 1  # what it needs, and rank 0 for the layout


# ---------------------------------------------------------------------- refusals


@on_its_device
def refusals(world: World) -> None:
    model = sharded(world.whole)
    before = gathered_parameters(model)
    state = full_state_dict(model)
    renamed = {name.replace("up", "rise"): x for name, x in state.items()}
    with pytest.raises(ValueError, match=r"missing \['blocks\.0\.up\.weight'.*rise"):
        load_full_state_dict(model, renamed)
    with pytest.raises(ValueError, match=r"norm\.weight has shape \(8,\), the state dict's \(9,\)"):
        load_full_state_dict(model, {**state, "norm.weight": torch.zeros(9)})
    after = gathered_parameters(model)
    assert all(torch.equal(after[name], before[name]) for name in before)
    shards = sharded_state_dict(model)
    other = sharded(world.whole, units=())
    with pytest.raises(ValueError, match=r"blocks\.0\.flat_shard.* stand on one side only"):
        load_sharded_state_dict(other, lambda _: shards)
    optimizer = adamw(model)
    model(*batch(world.rank, 0)).backward()
    optimizer.step()
    saved = full_optimizer_state(model, optimizer)
    group = saved["param_groups"][0]
    apart = [{**group, "params": group["params"][:1]}, {**group, "params": group["params"][1:]}]
    apart[1]["lr"] = 0.5
    with pytest.raises(ValueError, match="different settings and share one now"):
        load_full_optimizer_state(model, optimizer, {**saved, "param_groups": apart})


def test_a_state_that_does_not_fit_is_refused_before_anything_is_loaded(pool: Pool) -> None:
    pool(2).run(refusals)
