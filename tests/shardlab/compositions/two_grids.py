"""A run that begins on one grid, leaves a checkpoint, and goes on on another; and one process.

The ranks use what a program would use: StepGradients for replicas and for FSDP, a checkpoint, and
an optimizer. The one process shares with them the model and the optimizer alone: it adds gradients
up over the data ranks' micro-batches, scales the routers' losses and clips by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW, Optimizer

from shardlab.comm import Axis
from shardlab.experts import routing
from shardlab.experts.config import ExpertConfig
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers.cross_entropy import IGNORED
from shardlab.layers.dropout import dropouts_of, number_replicas
from tests.shardlab.compositions import step as one_step
from tests.shardlab.compositions.composition import BATCH, FROZEN, Composition, on_default_device
from tests.shardlab.compositions.one_process import Loads, drop_by_parts


@dataclass(frozen=True)
class Leg(Composition):
    """One of the grids of a run, and a step on it, on whose number the batch depends."""

    layers: int = 2
    step: int = 0

    def config(self) -> GPTConfig:
        return replace(super().config(), layers=self.layers)

    def batch(self) -> Any:
        generator = torch.Generator().manual_seed(self.step)
        text = torch.randint(21, (BATCH, 9), generator=generator, device="cpu")
        targets = text[:, 1:].clone()
        if self.reduction == "tokens":
            targets[torch.rand(BATCH, 8, generator=generator, device="cpu") < 0.4] = IGNORED
            targets[0, 0] = 0  # at least one counts
        return on_default_device(text[:, :-1], targets)


@dataclass(frozen=True)
class Run:
    """A run over one grid or several; its model is the same on all."""

    legs: tuple[Leg, ...]
    optimizer: str = "sgd"
    max_norm: float | None = None
    each: int = 2  # steps on each grid

    @property
    def tolerance(self) -> float:
        """Relative to how far each parameter moved (`Composition.tolerance` is of a gradient)."""
        return 10 * self.legs[0].tolerance

    def steps(self, number: int) -> Iterator[Leg]:
        """The steps on one of the grids."""
        for step in range(number * self.each, (number + 1) * self.each):
            yield replace(self.legs[number], step=step)

    def optimize(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The optimizer of what trains; a stage may have nothing that does."""
        group = [{"params": [p for p in parameters if p.requires_grad]}]
        if self.optimizer == "sgd":
            return SGD(group, lr=0.1, momentum=0.9)
        # With torch's eps a gradient of rounding alone (a key's bias) would move a whole step.
        return AdamW(group, lr=0.01, eps=1e-3, weight_decay=0.1)


def draw_run(seed: int) -> Run:
    """Return the run of a seed."""
    dice = random.Random(f"two grids {seed}")
    llama = (
        random.Random(f"llama {seed}").random() < 0.5
    )  # of its own: other draws stay as they were
    model = replace(_draw_model(dice), llama=llama)
    legs = [_draw_leg(dice, model, dice.choice([1, 2, 2, 4, 4])) for _ in range(2)]
    layers = max(2, *(leg.pieces for leg in legs))
    first, second = (replace(leg, layers=layers) for leg in legs)
    max_norm = dice.choice([None, 0.5])
    return Run((first, second), dice.choice(["sgd", "sgd", "adamw"]), max_norm)


def _draw_model(dice: random.Random) -> Leg:
    experts = _draw_experts(dice) if dice.random() < 0.7 else None
    return Leg(
        experts=experts, tied=dice.random() < 0.5, bias=dice.random() < 0.5,
        kv_heads=dice.choice([4, 4, 2]), dropout=dice.choice([0.0, 0.0, 0.0, 0.3]),
        frozen=dice.choice(["nothing", "nothing", *FROZEN]),
    )  # fmt: skip


def _draw_experts(dice: random.Random) -> ExpertConfig:
    top_k, scores = dice.choice([1, 2, 3]), dice.choice(["softmax", "softmax", "sigmoid"])
    capacity = dice.choice([None, None, 0.5, 1.0])
    return ExpertConfig(
        count=4, top_k=top_k, ffn=8, scores=scores, shared=dice.choice([None, 8]),
        pre_softmax=dice.random() < 0.5 or (top_k == 1 and scores == "softmax"),
        bias_rate=dice.choice([None, 0.01]) if scores == "sigmoid" else None,
        aux_loss=dice.choice([0.0, 0.3]), sequence_aux_loss=dice.choice([0.0, 0.2]),
        global_aux_loss=dice.choice([0.0, 0.0, 0.4]), z_loss=dice.choice([0.0, 0.1]),
        capacity=capacity, drop=dice.choice(["probs", "position"]),
        pad=capacity is not None and dice.random() < 0.5,
        dispatch=dice.choice(["all-to-all", "all-gather"]),
    )  # fmt: skip


def _draw_leg(dice: random.Random, model: Leg, ranks: int) -> Leg:
    """Draw a grid of so many ranks that this model can run on, and how it runs there."""
    cuts = [n for n in (1, 2, 4) if n <= ranks]
    grids = [
        (t, c, p)
        for t in cuts for c in cuts for p in cuts
        if t * c * p <= ranks and t <= model.kv_heads
        if not model.dropout or (t, c) == (1, 1)  # a mask is of a tensor rank's part
    ]  # fmt: skip
    tensor, context, pipeline = dice.choice(grids)
    data = ranks // tensor // context // pipeline
    micro = dice.choice([m for m in (1, 2, 4) if m * data <= BATCH])
    deals = 4 // tensor % context == model.kv_heads // tensor % context == 0
    leg = replace(
        model, tensor=tensor, context=context, pipeline=pipeline, data=data, microbatches=micro,
        kind=dice.choice(["ring", "all-gather", *(["ulysses"] * deals)]),
        sequence_parallel=tensor > 1 and (model.experts is not None or dice.random() < 0.6),
        recompute=dice.choice(["nothing", "nothing", "not reentrant", "reentrant"]),
    )  # fmt: skip
    if leg.recompute == "reentrant" and leg.frozen in ("embedding", "front"):
        leg = replace(leg, recompute="not reentrant")
    return _draw_schedule(dice, _draw_sharding(dice, leg))


def _draw_sharding(dice: random.Random, leg: Leg) -> Leg:
    whole_experts = not leg.experts or leg.tensor == 1 or not leg.bias
    if whole_experts and dice.random() < 0.6:
        strategy = dice.choice(["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
        leg = replace(leg, sharded=strategy, expert_tensor=leg.tensor if leg.experts else 1)
    elif leg.experts:
        room = leg.tensor * leg.data * leg.context
        ways = [(e, t) for e in (1, 2, 4) for t in (1, 2) if room % (e * t) == 0]
        expert, expert_tensor = dice.choice([way for way in ways if way[1] == 1 or not leg.bias])
        leg = replace(leg, expert=expert, expert_tensor=expert_tensor)
    counts = ["mean", "mean", "sum", *(["tokens"] * (leg.experts is None))]
    fused = leg.sharded is None and dice.random() < 0.3
    return replace(leg, reduction=dice.choice(counts), fused=fused)


def _draw_schedule(dice: random.Random, leg: Leg) -> Leg:
    if leg.pipeline == 1:
        return leg
    names = ["gpipe", "1f1b", *(["zb-h1"] * (leg.sharded is None))]
    names += ["interleaved"] * (leg.microbatches % leg.pipeline == 0)
    return replace(leg, schedule=dice.choice(names))


@dataclass
class Right:
    """What one process leaves: losses, norms, and the parameters at first and after each leg."""

    losses: list[float]
    norms: list[float]
    parameters: list[dict[str, Tensor]]


def alone(run: Run) -> Right:
    """The run in one process, which plays the data ranks in turn."""
    model = GPT(run.legs[0].config(), tensor=Axis.alone())
    replace(run.legs[0], recompute="nothing").prepared(model)
    optimizer, right = run.optimize(model.parameters()), Right([], [], [_snapshot(model)])
    for number in range(len(run.legs)):
        for leg in run.steps(number):
            optimizer.zero_grad()
            with patch.object(routing, "drop", partial(drop_by_parts, leg, routing.drop)):
                right.losses.append(_play(model, leg))
            limit = float("inf") if run.max_norm is None else run.max_norm
            trained = [p for p in model.parameters() if p.grad is not None]
            right.norms.append(float(clip_grad_norm_(trained, limit)))
            optimizer.step()
        right.parameters.append(_snapshot(model))
    return right


def _snapshot(model: GPT) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _play(model: GPT, leg: Leg) -> float:
    """Compute the gradients of a step, and move the routers' biases; return the loss."""
    loads, drawn = Loads(leg.data), [dropout.masks_drawn for dropout in dropouts_of(model)]
    if leg.experts and leg.experts.global_aux_loss:
        _play_ranks(model, leg, loads, drawn)  # to know the loads of all ranks
        model.zero_grad()
        for router in model.routers:
            router.forget()
        loads.known = True
    loss = _play_ranks(model, leg, loads, drawn)
    for router in model.routers:
        router.tokens = Axis.alone()
        router.end_step()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= one_step.divisor(leg)
    return loss / one_step.divisor(leg)


def _play_ranks(model: GPT, leg: Leg, loads: Loads, drawn: list[int]) -> float:
    loss = 0.0
    for rank in range(leg.data):
        number_replicas(model, rank)
        for dropout, number in zip(dropouts_of(model), drawn, strict=True):
            dropout.masks_drawn = number
        loads.watch(model)
        for router in model.routers:
            router._loads = []
        loss += one_step.play_rank(leg, model, rank)
    return loss
