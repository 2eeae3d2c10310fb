"""Padding neither routes nor counts in auxiliary losses: every case equals one process in fp64.

If these fail alone, look at `Router._count` and `Router._choose`; if the compositions whose
reduction is "tokens" do too, at `CountedTokens`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.fsdp import FSDP
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.layers.sharding import sharding_of
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import one_forward_one_backward
from shardlab.training.step import StepGradients
from tests.shardlab.difference import difference
from tests.shardlab.fsdp_models import gathered_gradients

BATCH, SEQUENCE, MICROBATCHES = 8, 8, 2
# Scores are fp32, and a scale that is a power of two rounds nothing: of two or four data ranks each
# micro-batch counts 2, 4, 8 or 16 tokens.
LENGTHS = [8, 8, 4, 4, 2, 2, 2, 2]
CONFIG = GPTConfig(
    layers=2, hidden=16, heads=4, ffn=16, vocab=21, sequence=SEQUENCE, init_std=0.3, bias=False,
    dtype=torch.float64,
)  # fmt: skip
PLAIN = ExpertConfig(count=4, top_k=2, ffn=8)
LOSSES = {
    "load": replace(PLAIN, aux_loss=0.5),
    "load of a sequence": replace(PLAIN, sequence_aux_loss=0.5),
    "load of the batch": replace(PLAIN, global_aux_loss=0.5),
    "size of logits": replace(PLAIN, z_loss=0.5),
}


class Case(NamedTuple):
    """A grid, whose other ranks are data ranks."""

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1
    sharded: bool = False


class Batch(NamedTuple):
    """Tokens, targets and whether a token is padding, [B, S] each."""

    tokens: Tensor
    targets: Tensor
    padding: Tensor

    def chunk(self, pieces: int) -> Iterator[Batch]:
        return (Batch(*piece) for piece in zip(*(x.chunk(pieces) for x in self), strict=True))

    @property
    def counted(self) -> int:
        return int((self.targets != IGNORED).sum())


def batch() -> Batch:
    generator = torch.Generator().manual_seed(5)
    text = torch.randint(CONFIG.vocab, (BATCH, SEQUENCE + 1), generator=generator)
    tokens, targets = text[:, :-1].clone(), text[:, 1:].clone()
    padding = torch.arange(SEQUENCE) >= torch.tensor(LENGTHS)[:, None]
    targets[padding] = IGNORED
    return Batch(tokens, targets, padding)


def summed(axis: Axis) -> Any:
    return lambda logits, targets: cross_entropy(logits, targets.t(), axis=axis).sum()


def alone(experts: ExpertConfig, data: int) -> dict[str, Tensor]:
    """One process: each piece's loss and auxiliary loss, both means, by its counted tokens."""
    everything = batch()
    model = GPT(replace(CONFIG, experts=experts), tensor=Axis.alone())
    for share in everything.chunk(data):
        for piece in share.chunk(MICROBATCHES):
            weight = piece.counted / everything.counted
            for router in model.routers:
                router.scale = weight
            logits = model(piece.tokens, None, piece.padding)
            (model.loss(logits, piece.targets) * weight).backward()
        for router in model.routers:
            router.end_step()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def errors(world: World, case: Case, experts: ExpertConfig, right: Any, begins: bool | None) -> Any:
    grid = Grid(
        world=world, tensor=case.tensor, context=case.context, pipeline=case.pipeline,
        expert=case.expert, expert_tensor=1,
    )  # fmt: skip
    context = ContextParallel(grid.context)
    model = GPT(
        replace(CONFIG, experts=experts), tensor=grid.tensor, sequence_parallel=case.tensor > 1,
        stage=grid.pipeline.rank, stages=case.pipeline, experts=ExpertAxes.of(grid),
        context=context,
    )  # fmt: skip
    shardings = {name: sharding_of(p) for name, p in model.named_parameters()}
    sharded = FSDP(model, grid.replicas, units=model.layers.values()) if case.sharded else None
    step = StepGradients(sharded or model, grid, microbatches=MICROBATCHES, reduction="tokens")
    [*shares] = batch().chunk(grid.data.size)
    share = Batch(*(context.shard(x) if case.context > 1 else x for x in shares[grid.data.rank]))
    [*pieces] = share.chunk(MICROBATCHES)
    masks = iter([piece.padding for piece in pieces])
    if begins is not None:
        model.register_forward_pre_hook(lambda _, inputs: (*inputs, None, next(masks)))
    if begins:
        step.begin(tokens=[piece.counted for piece in pieces])
    run(
        one_forward_one_backward(case.pipeline, MICROBATCHES), sharded or model,
        [(piece.tokens, piece.targets) for piece in pieces], summed(grid.tensor),
        axis=grid.pipeline, scale=1.0,
        shape=model.hidden_shape(BATCH // grid.data.size // MICROBATCHES, SEQUENCE),
    )  # fmt: skip
    step.finish(tokens=None if begins else share.counted)
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    if sharded:
        gradients = gathered_gradients(sharded)
    return {
        name: difference(gradient, cut.local(right[name]) if cut else right[name])
        for name, gradient in gradients.items()
        for cut in [shardings[name]]
    }


CASES = [
    Case(), Case(tensor=2, expert=2), Case(context=2), Case(tensor=2, context=2), Case(pipeline=2),
    Case(sharded=True), Case(pipeline=2, sharded=True),
]  # fmt: skip


FEW = [Case(tensor=2, context=2), Case(pipeline=2, sharded=True)]


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("load", CASES), ("load of a sequence", FEW), ("load of the batch", FEW[:1]),
        ("size of logits", FEW),
        *(pytest.param(kind, CASES, marks=pytest.mark.ci) for kind in [*LOSSES][1:]),
    ],
)  # fmt: skip
def test_router_losses_weigh_by_the_tokens_that_are_not_padding(
    pool: Any, kind: str, cases: list[Case]
) -> None:
    for case in cases:
        data = 4 // case.tensor // case.context // case.pipeline
        if kind == "load of the batch" and data > 1:
            continue  # one process doesn't see their load together; the compositions have that
        right, limit = alone(LOSSES[kind], data), 1e-11 if data > 1 else 1e-6
        for off in pool(4).run(errors, case, LOSSES[kind], right, True):
            assert {name: x for name, x in off.items() if x > limit} == {}, case


def test_without_begin_a_router_weighs_by_the_tokens_that_are_not_padding(pool: Any) -> None:
    for case in (Case(), Case(tensor=2)):
        right = alone(LOSSES["load"], 4 // case.tensor)
        for off in pool(4).run(errors, case, LOSSES["load"], right, False):
            assert {name: x for name, x in off.items() if x > 1e-11} == {}, case


def refused(world: World) -> None:
    with pytest.raises(ValueError, match=r"routers weighed .* call begin"):
        errors(world, Case(), LOSSES["load"], {}, None)


def test_a_step_that_counts_other_tokens_than_its_routers_is_refused_on_every_rank(
    pool: Any,
) -> None:
    pool(2).run(refused)


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_padding_changes_nothing_for_the_tokens_before_it(scores: str) -> None:
    """Each sequence alone without its padding equals all at once with the mask."""
    experts = replace(PLAIN, scores=scores, sequence_aux_loss=0.5)
    if scores == "sigmoid":
        experts = replace(experts, bias_rate=0.1)
    gradients, loads = [], []
    for masked in (False, True):
        model = GPT(replace(CONFIG, experts=experts), tensor=Axis.alone())
        everything = batch()
        for piece in everything.chunk(1 if masked else BATCH):
            size = SEQUENCE if masked else int((~piece.padding).sum())
            for router in model.routers:
                router.scale = 1.0 if masked else 1 / BATCH
            padding = piece.padding if masked else None
            logits = model(piece.tokens[:, :size], None, padding)
            (summed(Axis.alone())(logits, piece.targets[:, :size])).backward()
        loads.append([router._load_E for router in model.routers])
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert max(difference(gradients[1][n], gradients[0][n]) for n in gradients[0]) <= 1e-6  # fp32
    if scores == "sigmoid":
        assert all(torch.equal(a, b) for a, b in zip(*loads, strict=True))


def test_an_evaluation_without_gradients_is_no_part_of_the_mean_load() -> None:
    gradients = []
    for evaluates in (False, True):
        model = GPT(replace(CONFIG, experts=LOSSES["load of the batch"]), tensor=Axis.alone())
        first, second = batch().chunk(2)
        if evaluates:
            with torch.no_grad():
                model(second.tokens.flip(0))
        for piece in (first, second):
            model.loss(model(piece.tokens), piece.targets).backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
