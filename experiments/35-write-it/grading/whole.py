"""The linear layers beside one process that has them whole."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as fn
from torch import Tensor

from grading import RANKS
from grading.demands import drawn, leads_back, same, sends
from grading.watch import Watch


def linears(code: ModuleType, rank: int, watch: Watch) -> None:
    """F and G by themselves, then the layers made of them."""
    mirror("F", code.F, (False, True), rank, watch)
    mirror("G", code.G, (True, False), rank, watch)
    layer("column", code.column, rank, watch)
    layer("row", code.row, rank, watch)


def mirror(name: str, function: Any, sums: tuple[bool, bool], rank: int, watch: Watch) -> None:
    """One direction sums, the other hands on; neither changes what it is given."""
    x, dy = (torch.stack([drawn(seed + r, 4, 3).T for r in range(RANKS)]) for seed in (10, 20))
    leaf, output_gradient = turned(x[rank]).requires_grad_(), turned(dy[rank])
    entering = leaf * 1  # in place a leaf would refuse, this takes
    with watch:
        output = function.apply(entering)
    way(f"{name}.forward", (entering, output), (x[rank], x.sum(0)), sums[0], watch)
    with watch:
        (back,) = torch.autograd.grad(output, entering, output_gradient)
    way(f"{name}.backward", (output_gradient, back), (dy[rank], dy.sum(0)), sums[1], watch)


def turned(x: Tensor) -> Tensor:
    """Return the same numbers, not contiguous."""
    return x.T.contiguous().T


def way(
    name: str,
    through: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
    sums: bool,
    watch: Watch,
) -> None:
    """One direction: what came out, what became of what was given, and what was sent."""
    (inputs, out), (local, total) = through, right
    same(name, out, total if sums else local, {
        "It is the input, unchanged: nothing was all-reduced, or only a copy was, which was not "
        "returned (.contiguous() copies what isn't contiguous).": local,
        "It is the sum over ranks, but here each rank already has what it needs.": total,
        "It is the mean over ranks; expected the sum.": total / RANKS,
    })  # fmt: skip
    same(f"what {name} was given, afterwards", inputs, local, {
        "The all-reduce works in place: clone first, for other code may use the tensor.": total,
    })  # fmt: skip
    once = "One all-reduce is enough." if sums else "Each rank has what it needs."
    sends(name, watch, [("all_reduce", local.nbytes)] * sums, once)


# Along which dimension a rank has its part of x, weight, bias and output; None: it has the whole.
CUTS = {"column": (None, 0, 0, 1), "row": (1, 1, None, None)}


def part(whole: Tensor, dim: int | None, rank: int) -> Tensor:
    """Return what a rank has of a tensor."""
    return whole if dim is None else whole.chunk(RANKS, dim)[rank]


def layer(name: str, function: Callable[..., Tensor], rank: int, watch: Watch) -> None:
    """A linear layer, forward and backward, beside one process that has it whole."""
    *cuts, cut = CUTS[name]
    whole = [
        drawn(seed, *shape).requires_grad_()
        for seed, shape in ((30, (3, 4)), (31, (6, 4)), (32, (6,)))
    ]
    all_of_it = fn.linear(*whole)
    dy = drawn(33, *all_of_it.shape)
    all_of_it.backward(dy)
    y, dy = all_of_it.detach(), part(dy, cut, rank)
    parts = [part(t.detach(), dim, rank).clone() for t, dim in zip(whole, cuts, strict=True)]
    x, w, b = parts
    right = part(y, cut, rank)
    with watch:
        out = function(*(leaf.requires_grad_() for leaf in parts))
    same(f"{name}'s output", out, right, {
        "This is each rank's own product: the sum over ranks is missing (G).": fn.linear(x, w, b),
        "Every rank added the bias: add it once, after the sum.": right + (RANKS - 1) * b,
        "The bias is missing.": right - b,
        "It was gathered: the next layer takes each rank's own part.": y,
    })  # fmt: skip
    leads_back(f"{name}'s output", out)
    sends(f"{name}, forward", watch, [("all_reduce", y.nbytes)] * (name == "row"), WHOLE[name])
    with watch:
        out.backward(dy)
    partial = dy @ w.detach()
    for what, leaf, of, dim in zip(("x", "weight", "bias"), parts, whole, cuts, strict=True):
        assert of.grad is not None
        grad = part(of.grad, dim, rank)
        same(f"{name}: gradient of its {what}", leaf.grad, grad, {
            "It is this rank's part only: the sum over ranks is missing (F).": partial,
            "It was summed over ranks, but every rank had the whole already.": RANKS * grad,
        })  # fmt: skip
    sends(f"{name}, backward", watch, [("all_reduce", x.nbytes)] * (name == "column"), WHOLE[name])


WHOLE = {
    "column": "x is whole: forward sends nothing, and backward sums only dX.",
    "row": "Forward sums the outputs, once; dY is whole, so backward sends nothing.",
}
