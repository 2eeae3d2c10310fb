"""The linear layers beside one process that has them whole."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as fn
from torch import Tensor

from grading import RANKS
from grading.demands import (
    LAYOUTS,
    ONE_RANK,
    back_through,
    demand_returns,
    drawn,
    leads_back,
    report,
    returned,
    same,
    sends,
)
from grading.watch import Watch


def linears(code: ModuleType, rank: int, watch: Watch) -> list[str]:
    """F and G by themselves, then the layers made of them; return what they sent."""
    lines = []
    for name, function, sums in (("F", code.F, (False, True)), ("G", code.G, (True, False))):
        demand_returns(name, function)
        for seed, layout in enumerate(LAYOUTS):
            sent = mirror(name, function, sums, (rank, 100 * seed, layout), watch)
        lines.append(report(code, name, f"{sent[0]} B forward, {sent[1]} B backward"))
    for name, function in (("column", code.column), ("row", code.row)):
        layer(name, function, rank, watch, (5, 2, 4))
        sent = layer(name, function, rank, watch, (3, 4, 6))
        lines.append(report(code, name, f"{sent[0]} B forward, {sent[1]} B backward"))
    return lines


def mirror(
    name: str, function: Any, sums: tuple[bool, bool], case: tuple[int, int, str], watch: Watch
) -> tuple[int, int]:
    """One direction sums, the other hands on; neither changes what it is given."""
    rank, seed, layout = case
    x, dy = (torch.stack([drawn(seed + of + r, 3, 4) for r in range(RANKS)]) for of in (10, 20))
    laid = LAYOUTS["contiguous" if layout == ONE_RANK and rank == 0 else layout]
    leaf, output_gradient = x[rank].clone().requires_grad_(), laid(dy[rank])
    entering = laid(leaf)  # in place a leaf would refuse, this takes
    of = f" of a tensor that is {layout}"
    with watch:
        output = function.apply(entering)
    forward = way(f"{name}.forward{of}", (entering, output), (x[rank], x.sum(0)), sums[0], watch)
    leads_back(f"{name}.forward{of}", output)
    with watch:
        back = back_through(f"{name}.backward", output, entering, output_gradient)
    gradients = (output_gradient, back)
    return forward, way(f"{name}.backward{of}", gradients, (dy[rank], dy.sum(0)), sums[1], watch)


def way(
    name: str,
    through: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
    sums: bool,
    watch: Watch,
) -> int:
    """One direction: what came out, what became of what was given, and the bytes it sent."""
    (inputs, out), (local, total) = through, right
    remote = total - local
    if inputs.is_contiguous():
        mixed = remote.mT.reshape(local.shape)
    else:
        mixed = remote.reshape(local.mT.shape).mT
    same(name, out, total if sums else local, {
        "It is the input, unchanged: nothing was all-reduced, or only a copy was, which was not "
        "returned (.contiguous() copies what isn't contiguous).": local,
        "It is the sum over ranks, but here each rank already has what it needs.": total,
        "It is the other rank's: nothing was added to it.": remote,
        "The numbers were added in the order in which they are in memory, and on the other rank "
        "that order in memory differs: make the copy contiguous.": local + mixed,
        "It is the mean over ranks; it was divided once too often, expected the sum.":
            total / RANKS,
        "It was summed twice.": RANKS * total,
        "It is the larger of the ranks' numbers; expected their sum.": torch.maximum(local, remote),
        "It is the product of the ranks' numbers; expected their sum.": local * remote,
    })  # fmt: skip
    same(f"what {name} was given, afterwards", inputs, local, {
        "The all-reduce works in place: clone first, for other code may use the tensor. "
        "(.contiguous() returns the tensor itself if it is contiguous.)": total,
        "It was multiplied or divided in place: clone first, for other code may use the tensor.":
            local * RANKS,
    })  # fmt: skip
    once = "One all-reduce is enough." if sums else "Each rank has what it needs: send nothing."
    right_messages = [("all_reduce", local.nbytes)] * sums
    sends(name, watch, right_messages, once)
    return sum(payload for _, payload in right_messages)


# Along which dimension a rank has its part of x, weight, bias and output; None: it has the whole.
CUTS = {"column": (None, 0, 0, 1), "row": (1, 1, None, None)}


def part(whole: Tensor, dim: int | None, rank: int) -> Tensor:
    """Return what a rank has of a tensor."""
    return whole if dim is None else whole.chunk(RANKS, dim)[rank]


def layer(
    name: str, function: Callable[..., Tensor], rank: int, watch: Watch, sizes: tuple[int, int, int]
) -> tuple[int, int]:
    """A linear layer beside one process that has it whole; return its bytes in each direction."""
    tokens, features, outputs = sizes
    *cuts, cut = CUTS[name]
    shapes = ((30, (tokens, features)), (31, (outputs, features)), (32, (outputs,)))
    whole = [drawn(seed, *shape).requires_grad_() for seed, shape in shapes]
    all_of_it = fn.linear(*whole)
    dy = drawn(33, *all_of_it.shape)
    all_of_it.backward(dy)
    y, dy = all_of_it.detach(), part(dy, cut, rank)
    parts = [part(t.detach(), dim, rank).clone() for t, dim in zip(whole, cuts, strict=True)]
    x, w, b = parts
    before = [leaf.clone() for leaf in parts]
    right = part(y, cut, rank)
    with watch:
        out = returned(name, function(*(leaf.requires_grad_() for leaf in parts)))
    same(f"{name}'s output", out, right, {
        "The bias is missing.": right - b,
        "This is each rank's own product: the sum over ranks is missing (G).": fn.linear(x, w, b),
        "This is each rank's own product: the sum over ranks (G) and the bias are missing.":
            fn.linear(x, w),
        "Every rank added the bias: add it once, after the sum.": right + (RANKS - 1) * b,
        "The bias was divided by the number of ranks.": right - b + b / RANKS,
        "The bias was subtracted.": right - 2 * b,
        "It was gathered: the next layer takes each rank's own part.": y,
        "x was summed over ranks, but every rank has it whole: x enters through F.":
            fn.linear(RANKS * x, w, b),
        **({"The product was summed twice.": RANKS * (right - b) + b} if cut is None else {
            "It was summed over ranks (G), but these are each rank's own outputs.":
                torch.stack(y.chunk(RANKS, cut)).sum(0),
        }),
    })  # fmt: skip
    leads_back(f"{name}'s output", out)
    for what, leaf, old in zip(("x", "weight", "bias"), parts, before, strict=True):
        same(f"{name}'s {what}, afterwards", leaf, old, {
            "It was changed in place: other code may use it.": leaf.detach()
        })  # fmt: skip
    forward = [("all_reduce", y.nbytes)] * (name == "row")
    sends(f"{name}, forward", watch, forward, WHOLE[name])
    with watch:
        out.backward(dy)
    partial = dy @ w.detach()
    for what, leaf, of, dim in zip(("x", "weight", "bias"), parts, whole, cuts, strict=True):
        assert of.grad is not None
        grad = part(of.grad, dim, rank)
        same(f"{name}: gradient of its {what}", leaf.grad, grad, {
            "It is this rank's part only: the sum over ranks is missing (F).": partial,
            "It was summed over ranks, but every rank had the whole already.": RANKS * grad,
            "It was summed over ranks, but each rank has a part of its own: sum only dX.":
                torch.stack([part(of.grad, dim, index) for index in range(RANKS)]).sum(0),
        })  # fmt: skip
    backward = [("all_reduce", x.nbytes)] * (name == "column")
    sends(f"{name}, backward", watch, backward, WHOLE[name])
    return y.nbytes * len(forward), x.nbytes * len(backward)


WHOLE = {
    "column": "x is whole: forward sends nothing, and backward sums only dX.",
    "row": "Forward sums the outputs, once; dY is whole, so backward sends nothing.",
}
