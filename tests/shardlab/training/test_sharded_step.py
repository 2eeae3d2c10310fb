"""A step in FSDP is completed by the object that completes replicas': equal to one process in fp64.

If the cases with experts alone fail, look at the routers' scale and at `end_step`; if the one with
stages fails, at the tied weight's flat parameter; if `test_a_parameter_…`, at `refuse_unmarked`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import Axis, World
from shardlab.experts.config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.fsdp import FSDP, ShardingStrategy
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import one_forward_one_backward
from shardlab.training.step import StepGradients
from tests.shardlab.difference import difference
from tests.shardlab.fsdp_models import gathered_parameters

STEPS, BATCH, CLIP = 3, 8, 0.4
CONFIG = GPTConfig(
    layers=2, hidden=8, heads=2, ffn=12, vocab=13, sequence=6, init_std=0.3, dtype=torch.float64
)
BALANCED = ExpertConfig(count=4, top_k=2, ffn=8, aux_loss=0.5)
BIASED = ExpertConfig(count=4, top_k=2, ffn=8, bias_rate=0.05, scores="sigmoid")


class Case(NamedTuple):
    """A grid of two or four ranks; `data` is what is left."""

    strategy: str
    experts: ExpertConfig | None = None
    pipeline: int = 1
    tensor: int = 1
    microbatches: int = 4
    reduction: str = "mean"


def batch(step: int, ignored: bool) -> tuple[Tensor, Tensor]:
    """Tokens and targets [BATCH, S]; of the first half of the batch, some don't count."""
    generator = torch.Generator().manual_seed(step)
    text = torch.randint(CONFIG.vocab, (BATCH, CONFIG.sequence + 1), generator=generator)
    targets = text[:, 1:].clone()
    if ignored:
        targets[: BATCH // 2, ::2] = IGNORED
    return text[:, :-1], targets


def alone(case: Case) -> tuple[list[float], dict[str, Tensor]]:
    """One process: the norms and the parameters after the steps."""
    model = GPT(replace(CONFIG, experts=case.experts), tensor=Axis.alone())
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.2)
    norms = []
    for step in range(STEPS):
        optimizer.zero_grad()
        tokens, targets = batch(step, case.reduction == "tokens")
        pieces = case.microbatches * 2  # of two data ranks
        for router in model.routers:
            router.scale = 1 / pieces
        for x, y in zip(tokens.chunk(pieces), targets.chunk(pieces), strict=True):
            if case.reduction == "tokens":
                loss = cross_entropy(model(x), y.t(), axis=Axis.alone()).sum()
                loss = loss / (targets != IGNORED).sum()
            else:
                loss = model.loss(model(x), y) / pieces
            loss.backward()
        for router in model.routers:
            router.end_step()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        optimizer.step()
    return norms, {name: p.detach() for name, p in model.named_parameters()}


def train(world: World, case: Case, right: Any) -> dict[str, float]:
    grid = Grid(world=world, tensor=case.tensor, pipeline=case.pipeline)
    model = GPT(
        replace(CONFIG, experts=case.experts), tensor=grid.tensor, stage=grid.pipeline.rank,
        stages=case.pipeline, sequence_parallel=case.tensor > 1,
        experts=ExpertAxes.of(grid) if case.experts else None,
    )  # fmt: skip
    sharded = FSDP(
        model, grid.replicas, units=model.layers.values(), strategy=ShardingStrategy[case.strategy]
    )
    gradients = StepGradients(
        sharded, grid, microbatches=case.microbatches, max_norm=CLIP, reduction=case.reduction
    )
    optimizer = SGD([p for p in sharded.parameters() if p.requires_grad], lr=0.2)
    sums, share = case.reduction == "tokens", BATCH // grid.data.size
    norms = []
    for step in range(STEPS):
        x, y = (part.chunk(grid.data.size)[grid.data.rank] for part in batch(step, sums))
        run(
            one_forward_one_backward(case.pipeline, case.microbatches), sharded,
            list(zip(x.chunk(case.microbatches), y.chunk(case.microbatches), strict=True)),
            (lambda z, t: cross_entropy(z, t.t(), axis=grid.tensor).sum()) if sums else model.loss,
            axis=grid.pipeline,
            shape=model.hidden_shape(share // case.microbatches, CONFIG.sequence),
            scale=1.0 if sums else None,
        )  # fmt: skip
        tokens = int((y != IGNORED).sum()) if sums else None
        norms.append(float(gradients.finish(tokens=tokens)))
        optimizer.step()
        gradients.zero_grad()
    expected_norms, parameters = right
    errors = {"norm": max(abs(a / b - 1) for a, b in zip(norms, expected_norms, strict=True))}
    for name, value in gathered_parameters(sharded).items():
        if case.tensor == 1 or value.shape == parameters[name].shape:
            errors[name] = difference(value, parameters[name])
    return errors


CASES = {
    2: [
        Case("FULL_SHARD", BALANCED),
        Case("SHARD_GRAD_OP", BALANCED),
        Case("NO_SHARD", BALANCED),
        Case("FULL_SHARD", BIASED),
        Case("NO_SHARD", BIASED),
        Case("FULL_SHARD", None, reduction="tokens"),
    ],
    4: [
        Case("FULL_SHARD", None, pipeline=2),
        Case("NO_SHARD", None, pipeline=2),
        Case("FULL_SHARD", BALANCED, pipeline=2),
        Case("FULL_SHARD", None, tensor=2),
    ],
}


@pytest.mark.parametrize(
    ("ranks", "case"), [(ranks, case) for ranks, cases in CASES.items() for case in cases]
)
def test_steps_in_fsdp_equal_those_of_one_process(pool: Any, ranks: int, case: Case) -> None:
    right = alone(case)
    for errors in pool(ranks).run(train, case, right):
        assert {name: off for name, off in errors.items() if off > 1e-11} == {}


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
    tokens, targets = batch(0, False)
    gpt.loss(model(tokens), targets).backward()
    with pytest.raises(ValueError, match="1 parameters that no rank cuts have other") as refusal:
        step.finish()
    return str(refusal.value)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_parameter_that_nobody_marked_is_named_in_the_first_step(
    pool: Any, sharded: bool
) -> None:
    for message in pool(2).run(unmarked, sharded):
        assert "axis: scale." in message and "partial_gradients.mark" in message
