"""Experts among all the axes: a GPT with experts on TP × SP × EP × ETP × PP × DP trains as one
process does. If this alone fails, look at who averages an expert's gradient (`step.py`): by how
many ranks it is divided, over which it is summed, and how often its norm is counted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.experts.config import ExpertConfig
from shardlab.experts.layer import ExpertAxes
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.matmul import fuse
from shardlab.layers.sharding import sharding_of
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import one_forward_one_backward
from shardlab.training.step import StepGradients
from tests.shardlab.difference import difference
from tests.shardlab.pool import on_ranks

STEPS, BATCH, CLIP = 3, 8, 0.4
CONFIG = GPTConfig(
    layers=2, hidden=16, heads=4, ffn=16, vocab=21, sequence=8, init_std=0.2, bias=False,
    dtype=torch.float64,
)  # fmt: skip
PLAIN = ExpertConfig(count=4, top_k=2, ffn=8)


class Case(NamedTuple):
    """A grid; what is left of the world is data."""

    tensor: int
    pipeline: int
    expert: int
    expert_tensor: int
    microbatches: int = 1
    reduction: str = "mean"
    main_grads: bool = False
    context: int = 1


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets [BATCH, S] of a step."""
    generator = torch.Generator().manual_seed(step)
    text = torch.randint(CONFIG.vocab, (BATCH, CONFIG.sequence + 1), generator=generator)
    return text[:, :-1], text[:, 1:]


def alone(experts: ExpertConfig, parts: int) -> tuple[list[float], list[float], dict[str, Tensor]]:
    """One process, torch's own clipping: losses, norms, parameters. `parts` micro-batches."""
    torch.manual_seed(0)
    model = GPT(replace(CONFIG, experts=experts), tensor=Axis.alone())
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for router in model.routers:
            router.scale = 1 / parts
        for tokens, targets in zip(*(x.chunk(parts) for x in batch(step)), strict=True):
            loss = model.loss(model(tokens), targets) / parts
            loss.backward()
            total += loss.item()
        for router in model.routers:
            router.end_step()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(total)
        optimizer.step()
    assert min(norms) > CLIP
    return losses, norms, {n: p.detach() for n, p in model.named_parameters()}


def train(world: World, case: Case, experts: ExpertConfig) -> tuple[GPT, list[float], list[float]]:
    grid = Grid(
        world=world, tensor=case.tensor, pipeline=case.pipeline, expert=case.expert,
        expert_tensor=case.expert_tensor, context=case.context,
    )  # fmt: skip
    config, context = replace(CONFIG, experts=experts), ContextParallel(grid.context)
    model = GPT(
        config, tensor=grid.tensor, sequence_parallel=True, stage=grid.pipeline.rank,
        stages=case.pipeline, experts=ExpertAxes.of(grid), context=context,
    )  # fmt: skip
    if case.main_grads:  # then the linears add to them as they go
        fuse(model, gradient_accumulation=True)
    count, sums = case.microbatches, case.reduction == "tokens"
    gradients = StepGradients(
        model, grid, microbatches=count, max_norm=CLIP, start="verify", bucket_bytes=4000,
        reduction=case.reduction, main_grads=torch.float64 if case.main_grads else None,
    )  # fmt: skip
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    share, shard = BATCH // grid.data.size, context.shard if case.context > 1 else Tensor.contiguous

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return model.loss(logits, targets) * (targets.numel() if sums else 1)

    losses, norms = [], []
    for step in range(STEPS):
        batches = [shard(x.chunk(grid.data.size)[grid.data.rank]).chunk(count) for x in batch(step)]
        gradients.zero_grad()
        micro_losses = run(
            one_forward_one_backward(case.pipeline, count), model, list(zip(*batches, strict=True)),
            loss, axis=grid.pipeline, shape=model.hidden_shape(share // count, CONFIG.sequence),
            scale=1.0 if sums else None,
        )  # fmt: skip
        tokens = share * CONFIG.sequence // case.context if sums else None
        norms.append(float(gradients.finish(tokens=tokens)))
        if case.main_grads:
            for parameter in model.parameters():
                parameter.grad = getattr(parameter, "main_grad", None)
        optimizer.step()
        if micro_losses:
            each = torch.stack(micro_losses).sum() / (tokens or count)
            losses.append(grid.replicas.all_reduce(each, op="mean").item())
    return model, losses, norms


def errors(world: World, case: Case, experts: ExpertConfig, right: Any) -> dict[str, float]:
    losses, norms, parameters = right
    model, my_losses, my_norms = train(world, case, experts)
    worst = {"norm": max(abs(f / r - 1) for f, r in zip(my_norms, norms, strict=True))}
    if model.last:
        worst["loss"] = max(abs(f / r - 1) for f, r in zip(my_losses, losses, strict=True))
    for name, parameter in model.named_parameters():
        cut, whole = sharding_of(parameter), parameters[name]
        worst[name] = difference(parameter.detach(), cut.local(whole) if cut else whole)
    return worst


@pytest.fixture(scope="module")
def reference() -> Any:
    return cache(alone)


GRIDS = {
    1: [Case(1, 1, 1, 1)],
    2: [
        Case(1, 1, 2, 1),
        Case(2, 1, 1, 2),
        Case(2, 1, 2, 1),
        Case(2, 1, 1, 1),  # here megatron-core 0.16.1 learns wrong experts …
        Case(1, 1, 1, 2),  # … and here
        Case(1, 2, 1, 1, 2),
    ],
    4: [
        Case(2, 1, 2, 1),
        Case(2, 1, 4, 1),
        Case(2, 1, 2, 2),
        Case(1, 1, 2, 2),
        Case(1, 1, 4, 1, 2, "tokens"),
        Case(2, 2, 2, 1, 4),
        Case(2, 1, 2, 1, 2, "tokens"),
        Case(2, 1, 4, 1, 2, main_grads=True),
        Case(1, 2, 2, 1, 2, main_grads=True),
    ],
    8: [Case(2, 2, 2, 1, 2), Case(2, 2, 2, 2, 2), Case(1, 2, 4, 1, 2)],
}
LEFT = [
    (1, "all-gather"), (2, "all-to-all"), (4, "all-gather"), (8, "all-to-all"), (8, "all-gather"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "dispatch"),
    [
        (1, "all-to-all"),
        (2, "all-gather"),
        (4, "all-to-all"),
        *(pytest.param(*options, marks=pytest.mark.ci) for options in LEFT),
    ],
)
def test_experts_train_on_every_grid_as_in_one_process(
    pool: Any, reference: Any, ranks: int, dispatch: str
) -> None:
    for case in GRIDS[ranks]:
        experts = replace(PLAIN, dispatch=dispatch)
        for worst in pool(ranks).run(errors, case, experts, reference(PLAIN, 1)):
            assert max(worst.values()) <= 1e-12, (case, worst)


# What a loss is counted over, and the grids on which that is the same as in one process.
BY_PIECE = {  # a micro-batch of a data rank
    "losses": replace(PLAIN, aux_loss=0.3, sequence_aux_loss=0.2, z_loss=0.1),
    "sigmoid": replace(PLAIN, scores="sigmoid", aux_loss=0.3, sequence_aux_loss=0.2),
    "bias and shared": replace(PLAIN, scores="sigmoid", bias_rate=0.05, shared=16),
    "gated": replace(PLAIN, shared=16, shared_gate=True, groups=2, top_groups=1, scaling=2.0),
}
BY_RANK = {  # what one rank sees of it
    "capacity": replace(PLAIN, capacity=0.5),
    "padded": replace(PLAIN, capacity=0.5, drop="position", pad=True),
    "sinkhorn": replace(PLAIN, sinkhorn=True),
}
ON = [
    *((case, kind) for kind in BY_PIECE for case in (Case(2, 1, 2, 1, 2), Case(1, 2, 2, 1, 2))),
    *((Case(2, 1, 4, 1, 2, "tokens"), kind) for kind in ("losses", "bias and shared")),
    *((case, kind) for kind in BY_RANK for case in (Case(1, 1, 4, 1, 1), Case(1, 1, 2, 1, 2))),
]


ALONE = ("losses", "bias and shared", "padded")  # each of what a router has, at least once


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.ci] * (kind not in ALONE))
        for kind in [*BY_PIECE, *BY_RANK]
    ],
)
def test_what_steers_a_router_weighs_the_same_on_every_grid(
    pool: Any, reference: Any, kind: str
) -> None:
    experts = (BY_PIECE | BY_RANK)[kind]
    for case in (case for case, its in ON if its == kind):
        parts = case.microbatches * (4 // case.tensor // case.pipeline)  # on four ranks
        for worst in pool(4).run(errors, case, experts, reference(experts, parts)):
            assert max(worst.values()) <= 1e-12, (case, worst)


def test_a_loss_over_the_whole_batch_weighs_the_same_however_many_ranks_share_it(
    pool: Any, reference: Any
) -> None:
    # megatron-core 0.16.1 adds up the ranks' parts, and then divides by the data ranks once more.
    experts = replace(PLAIN, global_aux_loss=0.5)
    for case in (Case(1, 1, 4, 1), Case(2, 1, 2, 1), Case(1, 2, 2, 1)):
        for worst in pool(4).run(errors, case, experts, reference(experts, 1)):
            assert max(worst.values()) <= 1e-12, (case, worst)


# One by one: of two losses one could be too large by what the other lacks.
BALANCED = {
    "nothing": PLAIN,
    "load": replace(PLAIN, aux_loss=0.5),
    "load of a sequence": replace(PLAIN, sequence_aux_loss=0.5),
    "load of the batch": replace(PLAIN, global_aux_loss=0.5),
    "size of logits": replace(PLAIN, z_loss=0.5),
    "bias": replace(PLAIN, scores="sigmoid", bias_rate=0.05),
}
CUT = [
    Case(2, 1, 1, 1, context=2),
    Case(2, 1, 2, 2, context=2),
    Case(1, 2, 1, 1, context=2),  # experts lie as the dense layers do
    Case(2, 1, 4, 1, reduction="tokens", context=2),
]


@pytest.mark.parametrize(
    ("kind", "dispatch"),
    [
        pytest.param(k, d, marks=[] if (k, d) == ("load", "all-to-all") else pytest.mark.ci)
        for k in BALANCED
        for d in ("all-to-all", "all-gather")
    ],
)
def test_experts_beside_a_context_axis_train_and_balance_as_in_one_process(
    pool: Any, reference: Any, kind: str, dispatch: str
) -> None:
    right, experts = reference(BALANCED[kind], 1), replace(BALANCED[kind], dispatch=dispatch)
    for case in CUT:
        for worst in pool(4).run(errors, case, experts, right):
            assert max(worst.values()) <= 1e-12, (case, worst)


@on_ranks(2)
def test_a_rank_without_an_expert_to_train_counts_its_tokens_with_the_others(world: World) -> None:
    """Tokens are counted, and rank 0 has no expert to train; uneven shares."""
    config = replace(CONFIG, experts=PLAIN)
    grid = Grid(world=world, expert=2)
    model = GPT(config, tensor=grid.tensor, experts=ExpertAxes.of(grid))
    whole = GPT(config, tensor=Axis.alone())
    for name, parameter in (*model.named_parameters(), *whole.named_parameters()):
        parameter.requires_grad_("experts.0." not in name and "experts.1." not in name)
    gradients = StepGradients(model, grid, reduction="tokens")
    tokens, targets = batch(0)
    rows = slice(0, 2) if world.rank == 0 else slice(2, BATCH)
    loss = model.loss(model(tokens[rows]), targets[rows])
    (loss * targets[rows].numel()).backward()
    norm = gradients.finish(tokens=targets[rows].numel())
    whole.loss(whole(tokens), targets).backward()
    right = {name: p.grad for name, p in whole.named_parameters() if p.grad is not None}
    squares = torch.stack([gradient.square().sum() for gradient in right.values()])
    by_name = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert (
        max(
            abs(float(norm / squares.sum().sqrt()) - 1),
            *(difference(gradient, right[name]) for name, gradient in by_name.items()),
        )
        <= 1e-12
    )
