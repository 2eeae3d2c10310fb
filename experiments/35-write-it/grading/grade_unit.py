"""One unit beside PyTorch's FSDP2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as fn
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from grading import RANKS
from grading.demands import (
    GAPS,
    LAYOUTS,
    WrongError,
    back_through,
    demand_returns,
    drawn,
    leads_back,
    loss_of,
    model,
    network,
    report,
    returned,
    same,
    sends,
)
from grading.watch import Watch

RATE = 0.5  # of SGD
# Layouts of the gradient of what was gathered, which has one dimension.
GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": LAYOUTS["contiguous"],
    GAPS: LAYOUTS[GAPS],
    "expanded": lambda x: x,  # as it is after sum(): one number, seen many times
}


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


def even() -> nn.Module:
    """Return a network whose parameters need no padding."""
    return network(3, 2, 2)


def fsdp2(make: Callable[[], nn.Module], rank: int, steps: int) -> Iterator[Step]:
    """Train by SGD."""
    reference = fully_shard(make(), reshard_after_forward=True)
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


def unit(code: ModuleType, rank: int, watch: Watch) -> list[str]:
    """Gather by itself, then steps of two units: the same numbers, sent as often, held no longer.

    Returns what the second unit sent and held.
    """
    demand_returns("Gather", code.Gather)
    gather(code.Gather, rank, watch)
    for make, steps in ((even, 1), (model, 3)):
        oracle = [*fsdp2(make, rank, steps)]
        module = make()
        pieces = flat([*module.parameters()])
        watch.remember(module.parameters())
        with watch:
            learner_unit = code.Unit(module)
        numbers = [p.detach().clone() for p in make().parameters()]
        del module
        cut(learner_unit, pieces[rank].clone(), shard_faults(pieces, numbers, rank), watch)
        for step in oracle:
            forward_and_back(learner_unit, step, make, watch)
            with torch.no_grad():
                learner_unit.shard -= RATE * learner_unit.shard.grad
            same(f"step {step.number}, the shard after SGD", learner_unit.shard, step.weights, {})
    piece, whole = pieces[rank].nbytes, pieces[rank].nbytes * RANKS
    return [
        report(code, "Unit.__init__", f"0 B sent, {piece} B held"),
        report(code, "forward", f"{whole} B gathered, 0 B of them held afterwards"),
        report(code, "backward", f"{whole} B gathered, {whole} B reduce-scattered, 0 B held"),
    ]


def gather(function: Any, rank: int, watch: Watch) -> None:
    """All pieces one after another; on the way back, this rank's piece of the mean."""
    shards = [drawn(70 + r, 3) for r in range(RANKS)]
    for seed, layout in enumerate(GRADIENTS):
        entering = shards[rank].clone().requires_grad_() * 1
        with watch:
            whole = function.apply(entering)
        same("Gather.forward", whole, torch.cat(shards), {
            "It is this rank's own piece, once for each rank.": shards[rank].repeat(RANKS),
            "The pieces are in the wrong order: rank 0's comes first.": torch.cat(shards[::-1]),
            "It is the sum of the pieces, not the pieces.": torch.stack(shards).sum(0),
            "It is this rank's own piece: nothing was gathered.": shards[rank],
            "The pieces are rows of a matrix: put them one after another.": torch.stack(shards),
            "The pieces are mixed number by number: put one after another.":
                torch.stack(shards, 1).flatten(),
            "The other rank's piece is missing.": torch.cat(
                [s if r == rank else 0 * s for r, s in enumerate(shards)]
            ),
        })  # fmt: skip
        leads_back("Gather.forward", whole)
        gathered = entering.nbytes * RANKS
        sends("Gather.forward", watch, [("all_gather", gathered)], "One all-gather is enough.")
        grads = [drawn(80 + RANKS * seed + r, RANKS * 3) for r in range(RANKS)]
        if layout == "expanded":
            grads = [grad[:1].expand(RANKS * 3) for grad in grads]
        output_gradient = GRADIENTS[layout](grads[rank])
        what = f"Gather.backward of a gradient that is {layout}"
        with watch:
            back = back_through(what, whole, entering, output_gradient)
        mean = torch.stack([*grads]).mean(0)
        piece, local_pieces = mean.chunk(RANKS)[rank], grads[rank].chunk(RANKS)
        same(what, back, piece, {
            "It is the sum: divide by the number of ranks.": RANKS * piece,
            "It is half the mean: it was divided once too often.": piece / RANKS,
            "It is the larger of the ranks' numbers; expected their sum.":
                torch.stack([*grads]).amax(0).chunk(RANKS)[rank] / RANKS,
            "It is the other rank's piece.": mean.chunk(RANKS)[1 - rank],
            "It is this rank's own gradient: nothing was added to it.": local_pieces[rank],
            "It is this rank's own gradient, divided: nothing was added to it.":
                local_pieces[rank] / RANKS,
        })  # fmt: skip
        sends(what, watch, [("reduce_scatter", gathered)], (
            "One reduce-scatter is enough: an all-reduce would send twice as much."
        ))  # fmt: skip


def shard_faults(pieces: list[Tensor], numbers: list[Tensor], rank: int) -> dict[str, Tensor]:
    """Return what the usual mistakes hold in place of this rank's piece."""
    whole = torch.cat([p.flatten() for p in numbers])
    padding = -whole.numel() % RANKS
    front = fn.pad(whole, (padding, 0))
    return {
        "It is the other rank's piece: rank r keeps piece r.": pieces[1 - rank],
        "It is all of the parameters: keep this rank's piece only.": torch.cat(pieces),
        "The padding is at the front: it belongs at the end.": front.chunk(RANKS)[rank],
        "The padding was added though none is needed.":
            fn.pad(whole, (0, RANKS)).chunk(RANKS)[rank],
        "The padding isn't zero.": torch.cat(
            [whole, whole.new_ones(padding)]
        ).chunk(RANKS)[rank],
        "The parameters are in the wrong order.": flat(numbers[::-1])[rank],
        "A rank's piece is every second number: cut the flat tensor into runs.":
            torch.cat(pieces)[rank::RANKS],
        "The last numbers are missing: pad, so that all pieces are as long.":
            whole[: whole.numel() // RANKS * RANKS].chunk(RANKS)[rank],
        "The pieces are not as long: pad the flat tensor first.": whole.chunk(RANKS)[rank],
    }  # fmt: skip


def cut(learner_unit: Any, right: Tensor, faults: dict[str, Tensor], watch: Watch) -> None:
    """Check what a rank holds before the first step: its piece, and nothing else."""
    shard = getattr(learner_unit, "shard", None)
    if not isinstance(shard, Tensor):
        raise WrongError(f"Unit.__init__: expected a tensor as its `shard`, found {shard}.")
    sends("Unit.__init__", watch, [], "Every rank has the same module, and takes its piece of it.")
    same("the shard", shard, right, faults)
    if not (shard.is_leaf and shard.requires_grad):
        raise WrongError("the shard: no optimizer would take it; make it an nn.Parameter.")
    behind = shard.untyped_storage().nbytes()
    if behind > right.nbytes:
        raise WrongError(
            f"the shard has {right.nbytes} B, but its storage has {behind}: a chunk is a view, and "
            "keeps all of the tensor that it was cut from in memory. clone() it."
        )
    if stored := watch.stored_bytes([shard]):
        raise WrongError(
            f"Unit.__init__ leaves {stored} B in memory in addition to the shard's {right.nbytes}: "
            "the module's own parameters (module.to('meta') frees them), or the flat tensor."
        )


def forward_and_back(
    learner_unit: Any, step: Step, make: Callable[[], nn.Module], watch: Watch
) -> None:
    """Check what comes out, what is sent, and what is held in between and afterwards."""
    when, x, gathered = f"step {step.number}", step.x, step.grad.nbytes * RANKS
    learner_unit.shard.grad = None
    with watch:
        out = returned("Unit.forward", learner_unit.forward(x))
    same(f"{when}, the output", out, step.out, {})
    leads_back(f"{when}, the output", out)
    sends(f"{when}, forward", watch, [("all_gather", gathered)], "Gather all, at once.")
    watch.settle()
    if (stored := watch.stored_bytes([x, learner_unit.shard]) - activations(make(), x)) > 0:
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
        "It is half the mean: it was divided once too often.": step.grad / RANKS,
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


def activations(module: nn.Module, x: Tensor) -> int:
    """Return the bytes that a module which nobody shards holds between forward and backward."""
    with (watch := Watch()):
        out = module(x)
    stored = watch.stored_bytes([x, *module.parameters()])
    del out  # up to here it held them
    return stored
