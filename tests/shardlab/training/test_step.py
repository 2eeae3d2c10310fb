"""The order in which a step's gradients are completed, what it costs, and what it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import Axis, World
from shardlab.fsdp import FSDP
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import one_forward_one_backward
from shardlab.proofs.ledger import Ledger
from shardlab.training.step import StepGradients

CONFIG = GPTConfig(
    layers=2, hidden=8, heads=2, ffn=8, vocab=12, sequence=4, init_std=0.2, dtype=torch.float64
)


def build(world: World, **settings: Any) -> tuple[GPT, Grid, Any]:
    """Tensor × pipeline × data, two each, sequence parallel."""
    grid = Grid(world=world, tensor=2, pipeline=2)
    model = GPT(
        CONFIG, tensor=grid.tensor, sequence_parallel=True, stage=grid.pipeline.rank, stages=2,
        device=world.device,
    )  # fmt: skip
    return model, grid, StepGradients(model, grid, microbatches=2, start="verify", **settings)


def tokens(world: World, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(CONFIG.vocab, (batch, 4), generator=generator).to(world.device)


def backward(world: World, model: GPT, grid: Grid, rows: Tensor) -> None:
    """Two micro-batches of `rows` through the pipeline; each token predicts itself."""
    shape = model.hidden_shape(rows.shape[0] // 2, 4)
    run(
        one_forward_one_backward(2, 2), model, [(t, t) for t in rows.chunk(2)],
        model.loss, axis=grid.pipeline, shape=shape,
    )  # fmt: skip


def order_and_bytes(world: World) -> tuple[list[tuple[str, str, int]], dict[str, int], list[str]]:
    model, grid, gradients = build(world, max_norm=1.0)
    rows = tokens(world, 8).chunk(2)[grid.data.rank]
    for _ in range(2):  # the second step: buckets are settled
        backward(world, model, grid, rows)
        with Ledger() as ledger:
            gradients.finish()
        backwards_entries = [(e.op, e.axis, e.payload) for e in ledger.entries]
    partial = sum(p.nbytes for p in model.parameters() if partial_gradients.is_marked(p))
    tied = model.tied_weight.nbytes if model.tied_weight is not None else 0
    with Ledger() as ledger:
        backward(world, model, grid, rows)
    during = [e.axis for e in ledger.entries if e.op == "all_reduce"]
    gradients.finish()
    return backwards_entries, {"partial": partial, "tied": tied}, during


@pytest.mark.ci
def test_partial_and_tied_gradients_are_summed_after_the_data_axis_and_before_the_norm(
    pool: Any,
) -> None:
    for entries, size, during in pool(8).run(order_and_bytes):
        assert entries == [
            ("all_reduce", "tensor", size["partial"]),
            ("all_reduce", "embedding", size["tied"]),
            ("all_reduce", "tensor-pipeline", 8),
        ]
        assert during.count("data") == 1, "the data axis was served during backward"


def tied_copies(world: World) -> tuple[float, list[float]]:
    """Steps by SGD: how far apart the two copies of the embedding are, and the norms."""
    model, grid, gradients = build(world, max_norm=0.1)
    optimizer = SGD(model.parameters(), lr=0.5)
    norms = []
    for _ in range(3):
        backward(world, model, grid, tokens(world, 8).chunk(2)[grid.data.rank])
        norms.append(float(gradients.finish()))
        optimizer.step()
        optimizer.zero_grad()
    weight = model.tied_weight
    assert weight is not None and grid.embedding is not None
    copies = grid.embedding.all_gather(weight.detach()[None].contiguous())
    return float((copies[0] - copies[1]).abs().max()), norms


@pytest.mark.ci
def test_tied_copies_stay_equal_to_the_bit_and_all_ranks_report_one_norm(pool: Any) -> None:
    results = pool(8).run(tied_copies)
    assert all(distance == 0.0 for distance, _ in results)
    assert all(norms == results[0][1] for _, norms in results)
    assert all(norm > 0.1 for norm in results[0][1]), "what is reported is the norm before clipping"


def half_frozen(world: World) -> None:
    """A middle stage, that holds no copy, must not be left waiting."""
    config = replace(CONFIG, layers=4)
    grid = Grid(world=world, pipeline=4)
    model = GPT(config, tensor=grid.tensor, stage=grid.pipeline.rank, stages=4, device=world.device)
    if model.first:
        model.requires_grad_(False)
    with pytest.raises(ValueError, match="one copy of the tied embedding is frozen"):
        StepGradients(model, grid)


def test_a_tied_embedding_of_which_one_copy_is_frozen_is_refused_on_every_stage(pool: Any) -> None:
    pool(4).run(half_frozen)


def both_ends(world: World) -> float:
    """Three steps of a rank that holds both pieces of a tied model; how far it is from whole."""
    grid = Grid(world=world)
    pieces = [
        GPT(CONFIG, tensor=grid.tensor, stage=s, stages=2, device=world.device) for s in range(2)
    ]
    whole = GPT(CONFIG, tensor=Axis.alone(), device=world.device)
    gradients, everything = StepGradients(pieces, grid), tokens(world, 4)
    optimizer_pieces = SGD([p for piece in pieces for p in piece.parameters()], lr=0.5)
    optimizer_whole = SGD(whole.parameters(), lr=0.5)
    for _ in range(3):
        pieces[1].loss(pieces[1](pieces[0](everything)), everything).backward()
        whole.loss(whole(everything), everything).backward()
        gradients.finish()
        for optimizer in (optimizer_pieces, optimizer_whole):
            optimizer.step()
            optimizer.zero_grad()
    right = dict(whole.named_parameters())
    named = [named for piece in pieces for named in piece.named_parameters()]
    return max(float((p - right[name]).abs().max()) for name, p in named)


def test_a_rank_that_holds_both_ends_sums_what_its_two_copies_have(pool: Any) -> None:
    assert max(pool(1).run(both_ends)) <= 1e-12


class WithNorm(nn.Module):
    """A GPT with a norm of its own in front of the head, which nothing marks."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.gpt, self.scale = model, nn.Parameter(torch.ones(CONFIG.hidden).double())
        self.gpt.final_norm.register_forward_pre_hook(lambda _, x: (x[0] * self.scale,))

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.gpt(tokens)
        return y


def unmarked(world: World, sharded: bool) -> str:
    grid = Grid(world=world, tensor=2)
    gpt = GPT(CONFIG, tensor=grid.tensor, sequence_parallel=True)
    model: nn.Module = WithNorm(gpt)
    if sharded:
        model = FSDP(model, grid.replicas)
    step = StepGradients(model, grid)
    rows = tokens(world, 8)
    gpt.loss(model(rows), rows).backward()
    with pytest.raises(ValueError, match="1 parameters that no rank cuts have other") as refusal:
        step.finish()
    return str(refusal.value)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_parameter_that_nobody_marked_is_named_in_the_first_step(
    pool: Any, sharded: bool
) -> None:
    for message in pool(2).run(unmarked, sharded):
        assert "axis: scale." in message and "partial_gradients.mark" in message
