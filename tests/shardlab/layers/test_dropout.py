"""Who drops alike: masks seen on every rank, in the layer and in the places of the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shardlab.comm import Axis, World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.gpt.attention import Attention
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.dropout import Dropout, _torch_generator
from shardlab.training.step import StepGradients

CONFIG = GPTConfig(layers=2, hidden=16, heads=4, vocab=12, sequence=8, dropout=0.3)


def masks(world: World, seed: int) -> dict[str, Tensor]:
    """What each kind of region drops of ones."""
    ones = torch.ones(6, 5, device=world.device)
    kinds = {"replicated": False, "sharded": True}
    return {
        kind: torch.stack(
            [
                Dropout(0.5, axis=world.whole, sharded=sharded, name=name, seed=seed)(ones)
                for name in ("a", "b")
            ]
        ).cpu()
        for kind, sharded in kinds.items()
    }


def test_replicated_regions_share_a_mask_and_sharded_ones_have_their_own(pool) -> None:
    ranks = pool(4).run(masks, 0)
    for rank in ranks[1:]:
        assert torch.equal(rank["replicated"], ranks[0]["replicated"])
    everything = [rank["sharded"][i] for rank in ranks for i in range(2)]
    everything += list(ranks[0]["replicated"])
    for i, mask in enumerate(everything):
        for earlier in everything[:i]:
            assert not torch.equal(mask, earlier), "two places or ranks drop in step"


def test_another_seed_drops_other_elements(pool) -> None:
    first, second = (pool(2).run(masks, seed)[0] for seed in (0, 1))
    assert not torch.equal(first["replicated"], second["replicated"])


def test_dropout_keeps_the_mean_and_is_off_in_evaluation() -> None:
    layer = Dropout(0.25, axis=Axis.alone(), sharded=False, name="a", seed=0)
    x = torch.ones(100, 100).t()
    before = x.clone()
    y = layer(x)
    assert torch.equal(x, before)
    assert y.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float(y.mean()) == pytest.approx(1.0, abs=0.05)
    assert not torch.equal(layer(x), y), "the mask changes from call to call"
    assert layer.eval()(x) is x
    with pytest.raises(ValueError, match=r"dropout p = 1.0 of a: expected 0 <= p < 1"):
        Dropout(1.0, axis=Axis.alone(), sharded=False, name="a", seed=0)


def first_loss(world: World, wrap: str, dropout_seed: int | None) -> float:
    """The first loss of a tensor pair's model; every data rank has the same tokens."""
    grid = Grid(world=world, tensor=min(2, world.size))
    model = GPT(CONFIG, tensor=grid.tensor, dropout_seed=dropout_seed, device=world.device)
    run_by: nn.Module = model
    if wrap == "replicas":
        StepGradients(model, grid)
    else:
        run_by = FSDP(model, grid.data, strategy=ShardingStrategy[wrap])
    tokens = torch.arange(8, device=world.device).view(1, 8)
    return float(model.loss(run_by(tokens), tokens).detach())


@pytest.mark.parametrize("wrap", ["replicas", "FULL_SHARD", "NO_SHARD"])
def test_data_ranks_drop_other_elements_unless_their_seeds_were_chosen(
    pool: Any, wrap: str
) -> None:
    first, same, second, _ = pool(4).run(first_loss, wrap, None)  # two of the model, two replicas
    assert first == same != second
    assert first == pool(2).run(first_loss, wrap, None)[0], "the first is that of one replica"
    assert len({*pool(4).run(first_loss, wrap, 0)}) == 1


# ------------------------------------------------------------------ inside fused attention


def attended(layer: Attention, v: Tensor) -> Tensor:
    """What a layer's first mask leaves of attention; torch's own generator stands anywhere."""
    torch.seed()
    layer.dropout.masks_drawn = 0
    q, k = torch.randn(2, 1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    return layer._attend(q, k, v, None)


def test_fused_attention_drops_weights_that_seed_and_place_alone_choose() -> None:
    eye = torch.eye(8).expand(1, 4, 8, 8)  # as values: the weights come out
    first, again, place, seed = (
        attended(Attention(CONFIG, name, axis=Axis.alone(), dropout_seed=seed), eye)
        for name, seed in (("a", 0), ("a", 0), ("b", 0), ("a", 1))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, place) and not torch.equal(first, seed)
    layer = Attention(CONFIG, "a", axis=Axis.alone())
    v = torch.randn(1, 4, 8, 8)
    torch.testing.assert_close(attended(layer, v), first @ v)
    whole = attended(layer.eval(), eye)
    torch.testing.assert_close(first, whole * (first > 0) / (1 - CONFIG.dropout))


def drops(x: Tensor, dropout_p: float) -> Tensor:
    return torch.dropout(x, dropout_p, train=True)


def fails(x: Tensor, dropout_p: float) -> Tensor:
    raise ZeroDivisionError


def test_torchs_generator_is_restored_after_a_kernel_drew_from_it() -> None:
    layer = Dropout(0.5, axis=Axis.alone(), sharded=True, name="a", seed=0)
    draws = []
    for draw in (layer, partial(layer.run_fused, drops), partial(layer.run_fused, fails)):
        torch.manual_seed(7)
        with suppress(ZeroDivisionError):
            draw(torch.ones(4))
        draws.append(torch.rand(4))
    assert all(torch.equal(numbers, draws[0]) for numbers in draws), (
        "one label is drawn, and no more"
    )


def test_on_a_gpu_the_generator_is_that_of_the_tensors_own_device(monkeypatch) -> None:
    generators = [torch.Generator() for _ in range(2)]
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    assert _torch_generator(torch.device("cuda", 1)) is generators[1]


# ------------------------------------------------------------------ activation checkpointing

WAYS: dict[str, Callable[..., Any]] = {
    "saved": lambda block, x: block(x),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "not reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "nested": lambda block, x: checkpoint(
        lambda x: checkpoint(block, x, use_reentrant=False), x, use_reentrant=False
    ),
    "nested, reentrant": lambda block, x: checkpoint(
        lambda x: checkpoint(block, x, use_reentrant=True), x, use_reentrant=False
    ),
    "unseeded": lambda block, x: checkpoint(
        block, x, use_reentrant=False, preserve_rng_state=False
    ),
}


def checkpointed(model: GPT, way: str) -> GPT:
    for block in model.layers.values():
        block.forward = partial(WAYS[way], block.forward)
    return model


def learned(world: World, sequence_parallel: bool, way: str) -> tuple[list[Tensor], set[int]]:
    """Gradients of three micro-batches whose backwards come last first; how many masks there were.

    The first and the last are alike: only their masks differ.
    """
    model = GPT(
        CONFIG, tensor=world.whole, sequence_parallel=sequence_parallel, device=world.device
    )
    checkpointed(model, way)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 12, (2, 3, 8), generator=generator).to(world.device)
    losses = [model.loss(model(tokens[i]), tokens[i]) for i in (0, 1, 0)]
    for loss in losses[::-1]:
        loss.backward()
    masks = {module.masks_drawn for module in model.modules() if isinstance(module, Dropout)}
    return [p.grad.cpu() for p in model.parameters() if p.grad is not None], masks


@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["whole", "sequence_parallel"])
def test_a_recomputation_draws_the_mask_of_its_forward(pool, sequence_parallel) -> None:
    saved, masks = zip(*pool(2).run(learned, sequence_parallel, "saved"), strict=True)
    assert masks == ({3}, {3})
    for way in ("reentrant", "not reentrant", "nested", "nested, reentrant"):
        actual, masks = zip(*pool(2).run(learned, sequence_parallel, way), strict=True)
        assert masks == ({3}, {3}), "a recomputation counted as a mask of its own"
        for ours, reference in zip(actual, saved, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, reference, strict=True)), way


def test_a_recomputation_that_cannot_know_its_mask_is_refused(pool) -> None:
    model = checkpointed(GPT(CONFIG, tensor=Axis.alone()), "unseeded")
    tokens = torch.zeros(1, 8, dtype=torch.long)
    loss = model.loss(model(tokens), tokens)
    with pytest.raises(RuntimeError, match=r"layers\.1\..*preserve_rng_state=True"):
        loss.backward()


def seeded_alike(way: str, in_flight: int, experts: ExpertConfig | None = None) -> list[Tensor]:
    """Gradients of two micro-batches, before each of which torch's generator is seeded alike."""
    dropout = 0.0 if experts else CONFIG.dropout
    config = replace(CONFIG, dropout=dropout, experts=experts, bias=not experts)
    model = checkpointed(GPT(config, tensor=Axis.alone()), way)
    tokens = torch.arange(8).view(2, 1, 4)
    losses: list[Tensor] = []
    for i in (0, 1):
        torch.manual_seed(0)
        losses.append(model.loss(model(tokens[i]), tokens[i]))
        if len(losses) == in_flight:
            losses.pop(0).backward()
    for loss in losses:
        loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


BALANCED = ExpertConfig(count=2, top_k=1, ffn=8, pre_softmax=True, global_aux_loss=0.3)


@pytest.mark.parametrize("way", ["reentrant", "not reentrant", "nested"])
@pytest.mark.parametrize("experts", [None, BALANCED], ids=["dropout", "router"])
def test_a_recomputation_of_one_of_two_forwards_from_one_seed_is_refused(
    way: str, experts: ExpertConfig | None
) -> None:
    right = seeded_alike("saved", 1, experts)
    actual = seeded_alike(way, 1, experts)
    assert all(torch.equal(a, b) for a, b in zip(actual, right, strict=True))
    with pytest.raises(RuntimeError, match=r"layers\.1\..* call torch\.manual_seed once"):
        seeded_alike(way, 2, experts)
    assert seeded_alike("saved", 2, experts), "without recomputation the seeds are no fault"
