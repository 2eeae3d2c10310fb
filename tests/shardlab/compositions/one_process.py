"""A run in one process, which does as many ranks do: with their loads, capacities and masks.

It shares with the ranks the model and the optimizer alone: it plays the data ranks in turn, each
with its micro-batches, adds their gradients up, scales the routers' losses and clips by itself.
Dropout draws a mask for each tensor rank's part; the one process puts those of all ranks side by
side. A capacity is of each rank's rows, so it drops by parts too. And where a loss looks at the
load of all data ranks it plays them once before, to know it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from shardlab.comm import Axis
from shardlab.context import zigzag
from shardlab.experts import routing
from shardlab.gpt.model import GPT
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.layers.dropout import Dropout, dropouts_of, number_replicas
from shardlab.parity import ranks
from shardlab.parity.case import Case
from tests.shardlab.compositions.composition import Composition, Run


class Loads:
    """The experts' load summed over all data ranks, in place of the axis that would sum it.

    While `known` is False each rank that is played adds its load; then the sums are given back.
    """

    def __init__(self, ranks: int) -> None:
        self.size, self.known = ranks, False
        self._sums: dict[tuple[int, int], Tensor] = {}

    def watch(self, model: GPT) -> None:
        """Make the routers of `model` take the load of all data ranks from here."""
        for layer, router in enumerate(model.routers):
            times = count()
            router.tokens = cast(
                Axis,
                SimpleNamespace(
                    size=self.size,
                    all_reduce=lambda load, layer=layer, times=times: self._sum(
                        load, (layer, next(times))
                    ),
                ),
            )

    def _sum(self, load: Tensor, place: tuple[int, int]) -> Tensor:
        if not self.known:
            self._sums[place] = self._sums.get(place, torch.zeros_like(load)) + load
        return self._sums[place]


def drop_by_parts(
    case: Composition, drop: Any, probs_TE: Tensor, chosen_TE: Tensor, config: Any
) -> Any:
    """Drop as each tensor and context rank does: each drops some of its own rows."""
    tokens = case.config().sequence
    order_S = zigzag.order(tokens, case.context) if case.context > 1 else torch.arange(tokens)
    order_T = torch.arange(len(probs_TE)).view(tokens, -1)[order_S].flatten()
    parts = case.tensor * case.context
    pairs = zip(probs_TE[order_T].chunk(parts), chosen_TE[order_T].chunk(parts), strict=True)
    dropped = [drop(p, c, config) for p, c in pairs]
    back_T = order_T.argsort()
    return tuple(torch.cat(both)[back_T] for both in zip(*dropped, strict=True))


class JoinedDropout(nn.Module):
    """A dropout that puts the masks of some tensor ranks side by side along a dim."""

    def __init__(self, dropout: Dropout) -> None:
        super().__init__()
        self.p, self._dim = dropout.p, 0
        self.ranks = nn.ModuleList([dropout])

    def join(self, ranks: int, dim: int, sharded: bool) -> None:
        """Go on with the masks of so many ranks."""
        first = cast(Dropout, self.ranks[0])
        seed, name, _ = first._key
        axes = [cast(Axis, SimpleNamespace(rank=rank)) for rank in range(ranks)]
        self._dim = dim
        self.ranks = nn.ModuleList(
            Dropout(self.p, axis=axis, sharded=sharded, name=name, seed=seed) for axis in axes
        )
        for dropout in dropouts_of(self):
            dropout.replica, dropout.masks_drawn = first.replica, first.masks_drawn

    def forward(self, x: Tensor) -> Tensor:
        parts = x.chunk(len(self.ranks), self._dim)
        dropped = [drop(part) for drop, part in zip(self.ranks, parts, strict=True)]
        return torch.cat(dropped, self._dim)

    def run_fused(self, kernel: Any, *tensors: Tensor) -> Tensor:
        """Run `kernel` on each rank's heads alone, since a fused kernel draws its mask itself."""
        parts = zip(*(x.chunk(len(self.ranks), self._dim) for x in tensors), strict=True)
        pairs = zip(dropouts_of(self), parts, strict=True)
        return torch.cat([drop.run_fused(kernel, *part) for drop, part in pairs], self._dim)


def make_joined(model: GPT) -> None:
    """Replace the dropouts of `model` by some whose masks can be joined."""
    for name, module in list(model.named_modules()):
        if isinstance(module, Dropout):
            holder, _, last = name.rpartition(".")
            setattr(model.get_submodule(holder), last, JoinedDropout(module))


def join_masks(model: GPT, case: Composition) -> None:
    """Let `model` drop what all tensor ranks together drop."""
    for name, module in list(model.named_modules()):
        if isinstance(module, JoinedDropout):
            heads = name.endswith("attention.dropout")
            sharded = heads or case.sequence_parallel
            module.join(case.tensor if sharded else 1, 1 if heads else 0, sharded)


@dataclass
class Right:
    """What one process leaves: losses, norms, and the parameters at first and after each grid."""

    losses: list[float]
    norms: list[float]
    parameters: list[dict[str, Tensor]]


def alone(run: Run) -> Right:
    """The run in one process, which plays the data ranks in turn."""
    model = GPT(run.legs[0].config(), tensor=Axis.alone())
    replace(run.legs[0], recompute="nothing").prepared(model)
    make_joined(model)
    optimizer, right = run.optimize(model.parameters()), Right([], [], [_snapshot(model)])
    for number in range(len(run.legs)):
        join_masks(model, run.legs[number])
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


def _play(model: GPT, leg: Composition) -> float:
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
            parameter.grad /= divisor(leg)
    return loss / divisor(leg)


def _play_ranks(model: GPT, leg: Composition, loads: Loads, drawn: list[int]) -> float:
    loss = 0.0
    for rank in range(leg.data):
        number_replicas(model, rank)
        for dropout, number in zip(dropouts_of(model), drawn, strict=True):
            dropout.masks_drawn = number
        loads.watch(model)
        for router in model.routers:
            router._loads = []
        loss += play_rank(leg, model, rank)
    return loss


def play_rank(case: Composition, model: GPT, rank: int) -> float:
    """Add a data rank's gradients to those of `model`, and return its loss: times `divisor`."""
    sums, total = case.reduction == "tokens", 0.0
    each = 1.0 if sums else 1 / case.microbatches
    for router in model.routers:
        router.scale = "tokens" if sums else each
    pack_documents(case, model, rank)
    for number, (tokens, targets) in enumerate(split_batch(case, rank)):
        if sums:
            for router in model.routers:
                router.counted = _counted(case, rank)[number], _counted(case)[number]
        loss = loss_of(case, model, Axis.alone())(model(tokens), targets) * each
        loss.backward()
        total += loss.item()
    return total


def divisor(case: Composition) -> int:
    """What the sums over a step's data ranks are divided by."""
    counted = int((case.batch()[1] != IGNORED).sum())
    return {"mean": case.data, "sum": 1, "tokens": counted}[case.reduction]


def split_batch(case: Composition, rank: int, model: GPT | None = None) -> list[Any]:
    """Return this data rank's (tokens, targets) of each micro-batch, cut over the context axis."""
    return ranks.split_batch(case.batch(), rank, cast(Case, case), model)


def _counted(case: Composition, rank: int | None = None) -> list[int]:
    """How many targets count in each micro-batch, of one data rank or of all."""
    ranks = range(case.data) if rank is None else [rank]
    each = [[int((y != IGNORED).sum()) for _, y in split_batch(case, r)] for r in ranks]
    return [sum(column) for column in zip(*each, strict=True)]


def pack_documents(case: Composition, model: GPT, rank: int) -> None:
    """Hand the model each micro-batch's documents; their forwards come in order."""
    if earlier := model.__dict__.pop("documents_hook", None):
        earlier.remove()
    if case.packed:
        documents = iter(case.documents().chunk(case.data)[rank].chunk(case.microbatches))
        model.documents_hook = model.register_forward_pre_hook(
            lambda _, inputs: (*inputs, next(documents))
        )


def loss_of(case: Composition, model: GPT, tensor: Axis) -> Any:
    if case.reduction != "tokens":
        return model.loss
    return lambda logits, targets: cross_entropy(logits, targets.t(), axis=tensor).sum()
