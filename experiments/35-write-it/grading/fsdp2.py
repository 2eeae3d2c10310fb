"""One unit beside PyTorch's FSDP2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as fn
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from grading import RANKS
from grading.demands import WrongError, drawn, leads_back, loss_of, model, same, sends
from grading.watch import Watch

RATE = 0.5  # of SGD


def flat(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the ranks' pieces of tensors laid end to end, padded."""
    whole = torch.cat([t.detach().flatten() for t in tensors])
    return [*fn.pad(whole, (0, -whole.numel() % RANKS)).chunk(RANKS)]


class Step(NamedTuple):
    """What FSDP2 made of a step, and this rank's pieces of gradient and weights after it."""

    number: int
    x: Tensor
    out: Tensor
    grad: Tensor
    weights: Tensor


def fsdp2(rank: int, steps: int) -> Iterator[Step]:
    """Train by SGD."""
    reference = fully_shard(model(), reshard_after_forward=True)
    for step in range(steps):
        reference.zero_grad()
        x = drawn(60 + RANKS * step + rank, 4, 3)
        out = reference(x)
        loss_of(out).backward()
        grads = [p.grad.full_tensor() for p in reference.parameters()]
        with torch.no_grad():
            torch._foreach_add_(
                [*reference.parameters()], [p.grad for p in reference.parameters()], alpha=-RATE
            )
        weights = [p.full_tensor() for p in reference.parameters()]
        yield Step(step, x, out.detach(), flat(grads)[rank], flat(weights)[rank])


def unit(code: ModuleType, rank: int, watch: Watch) -> None:
    """Compare three steps: the same numbers, sent as often, held no longer."""
    oracle = [*fsdp2(rank, steps=3)]
    module = model()
    right = flat([*module.parameters()])[rank].clone()
    watch.remember(module.parameters())
    with watch:
        learner_unit = code.Unit(module)
    del module
    cut(learner_unit, right, watch)
    for step in oracle:
        forward_and_back(learner_unit, step, watch)
        with torch.no_grad():
            learner_unit.shard -= RATE * learner_unit.shard.grad
        same(f"step {step.number}, the shard after SGD", learner_unit.shard, step.weights, {})


def cut(learner_unit: Any, right: Tensor, watch: Watch) -> None:
    """Check what a rank holds before the first step: its piece, and nothing else."""
    same("the shard", learner_unit.shard, right, {})
    if not (learner_unit.shard.is_leaf and learner_unit.shard.requires_grad):
        raise WrongError("the shard: no optimizer would take it; make it an nn.Parameter.")
    behind = learner_unit.shard.untyped_storage().nbytes()
    if behind > right.nbytes:
        raise WrongError(
            f"the shard has {right.nbytes} B, but its storage has {behind}: a chunk is a view, and "
            "keeps all of the tensor that it was cut from in memory. clone() it."
        )
    if stored := watch.stored_bytes([learner_unit.shard]):
        raise WrongError(
            f"Unit.__init__ leaves {stored} B in memory in addition to the shard's {right.nbytes}: "
            "the module's own parameters (module.to('meta') frees them), or the flat tensor."
        )
    sends("Unit.__init__", watch, [], "Every rank has the same module, and takes its piece of it.")


def forward_and_back(learner_unit: Any, step: Step, watch: Watch) -> None:
    """Check what comes out, what is sent, and what is held in between and afterwards."""
    when, x, gathered = f"step {step.number}", step.x, step.grad.nbytes * RANKS
    learner_unit.shard.grad = None
    with watch:
        out = learner_unit.forward(x)
    same(f"{when}, the output", out, step.out, {})
    leads_back(f"{when}, the output", out)
    sends(f"{when}, forward", watch, [("all_gather", gathered)], "All parameters, at once.")
    watch.settle()
    if (stored := watch.stored_bytes([x, learner_unit.shard]) - activations(x)) > 0:
        raise WrongError(
            f"{when}: after forward {stored} B more are in memory than with an unsharded module, "
            f"and {gathered} were gathered. Autograd saved weights, and each is a view of all that "
            "was gathered. Use saved_tensors_hooks to save only where each weight is, and gather "
            "again in backward."
        )
    with watch:
        loss_of(out).backward()
    same(f"{when}, the shard's gradient", learner_unit.shard.grad, step.grad, {
        "It is the sum: divide by the number of ranks.": RANKS * step.grad,
        "It is half the mean: it was divided twice.": step.grad / RANKS,
    })  # fmt: skip
    sends(f"{when}, backward", watch, [("all_gather", gathered), ("reduce_scatter", gathered)], (
        "Gather again, then reduce-scatter: an all-reduce would send twice as much."
    ))  # fmt: skip
    del out
    watch.settle()
    if stored := watch.stored_bytes([x, learner_unit.shard, learner_unit.shard.grad]):
        raise WrongError(
            f"{when}: after backward {stored} B of what was gathered are still in memory."
        )


def activations(x: Tensor) -> int:
    """Return the bytes that a module which nobody shards holds between forward and backward."""
    module = model()
    with (watch := Watch()):
        out = module(x)
    stored = watch.stored_bytes([x, *module.parameters()])
    del out  # up to here it held them
    return stored
