"""What is demanded of written code, and what is said where it falls short."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from grading.watch import Watch

Sent = Sequence[tuple[str, int]]


class WrongError(Exception):
    """What is wrong, and what it comes from."""


def drawn(seed: int, *shape: int) -> Tensor:
    """Return numbers that are the same wherever they are drawn.

    They are fp64: what is equal is equal, and what is twice as long is so exactly.
    """
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def equal(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    return x.shape == y.shape and x.dtype == y.dtype and torch.allclose(x, y, rtol=1e-9, atol=1e-12)


# What is said when every number is this many times the right one.
RATIOS = {
    2.0: "It was summed twice, or not divided by the number of ranks.",
    0.5: "It was divided once too often.",
    0.0: "It is missing on this rank.",
    4.0: "It was summed twice and not divided by the number of ranks, or summed three times.",
    0.25: "It was divided twice too often.",
    -1.0: "Its sign is wrong.",
}


def ratio(computed: Tensor, right: Tensor) -> float | None:
    """Return how many times the right one each number is, within 1e-6; None: not all alike."""
    times = round(((computed * right).sum() / right.square().sum()).item(), 6)
    close = (computed - times * right).abs() <= 1e-6 * right.abs() + 1e-9
    return times if close.all() else None


def same(what: str, computed: Tensor | None, right: Tensor, faults: Mapping[str, Tensor]) -> None:
    """Demand a tensor; `faults` are what the usual mistakes make of it, by what is said of them."""
    if not isinstance(computed, Tensor):
        raise WrongError(
            f"{what}: expected a tensor, found {computed}. No gradient reaches it: was something "
            "computed outside autograd (no_grad, detach, .data), or not returned?"
        )
    computed = computed.detach()
    if equal(computed, right):
        return
    cause = next((f" {name}" for name, wrong in faults.items() if equal(computed, wrong)), "")
    if computed.shape != right.shape:
        shapes = f"expected shape {list(right.shape)}, found {list(computed.shape)}"
        raise WrongError(f"{what}: {shapes}.{cause}")
    if computed.dtype != right.dtype:
        raise WrongError(
            f"{what}: expected {right.dtype}, found {computed.dtype}. Something converts it, and "
            "it has lost digits."
        )
    off, times = (computed - right).abs().max().item(), (computed.norm() / right.norm()).item()
    if (exact := ratio(computed, right)) in (None, 1.0):
        norm = f"its norm is {times:.2f} x the right one"
    else:
        norm = f"every number is exactly {exact:.2f} x the right one"
        cause = cause or f" {RATIOS.get(exact, 'Only the factor is wrong.')}"
    if not cause and torch.allclose(
        computed, right, rtol=1e-5, atol=1e-6 * right.abs().max().item()
    ):
        cause = " It is right to seven digits only: something computes in fp32."
    cause = cause or " That is none of the usual mistakes: compare the two, number by number."
    raise WrongError(f"{what}: off by up to {off:.2g}; {norm}.{cause}")


def returned(name: str, result: Any) -> Any:
    """Demand that a function returned something, and return that."""
    if result is None:
        raise WrongError(f"{name} returns nothing: its last line needs a `return`.")
    return result


def demand_returns(name: str, function: type) -> None:
    """Have an autograd function say that it returns nothing, before PyTorch complains of that."""
    for way in ("forward", "backward"):
        setattr(function, way, staticmethod(_returning(f"{name}.{way}", getattr(function, way))))


def _returning(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return returned(name, function(*args, **kwargs))

    return call


def back_through(what: str, out: Tensor, entering: Tensor, output_gradient: Tensor) -> Tensor:
    """Return what autograd makes of an output's gradient; name what PyTorch would complain of."""
    try:
        (gradient,) = torch.autograd.grad(out, entering, output_gradient)
    except RuntimeError as error:
        if shapes := re.search(
            r"got (\[.*?\]) but expected shape compatible with (\[.*?\])", f"{error}"
        ):
            raise WrongError(
                f"{what}: expected shape {shapes[2]}, found {shapes[1]}. A gradient has the shape "
                "of what entered forward."
            ) from None
        if counts := re.search(r"number of gradients \(expected (\d+), got (\d+)\)", f"{error}"):
            raise WrongError(
                f"{what}: expected {counts[1]} gradient, found {counts[2]}. Return one for each "
                "tensor that entered forward."
            ) from None
        raise
    return gradient


def leads_back(what: str, out: Tensor) -> None:
    """Demand that autograd finds its way from an output."""
    if not out.requires_grad or out.grad_fn is None:
        raise WrongError(
            f"{what}: autograd can't go back from it; was it computed under no_grad, or from .data "
            "or detach()?"
        )


def sends(what: str, watch: Watch, right: Sent, cause: str) -> None:
    """Demand that just this was sent, since the last time; then forget it."""
    sent = [(entry.op, entry.payload) for entry in watch.entries]
    watch.entries.clear()
    if sent != [*right]:
        raise WrongError(
            f"{what}: expected {words(right)} on the wire, found {words(sent)}. {cause}"
        )


def words(sent: Sent) -> str:
    """Say what is sent."""
    return " + ".join(f"{op} of {payload} B" for op, payload in sent) or "nothing"


def report(code: ModuleType, name: str, measured: str) -> str:
    """Return a line of what a right answer is shown: the measured bytes, and those predicted."""
    predicted = getattr(code, "PREDICTED", None)
    if not isinstance(predicted, dict):
        return f"{name}: {measured}"
    prediction = predicted.get(name)
    numbers = [*prediction] if isinstance(prediction, (list, tuple)) else [prediction]
    if all(number is None for number in numbers):
        return f"{name}: {measured}; you predicted nothing"
    return f"{name}: {measured}; you predicted {', '.join(map(str, numbers))}"


ONE_RANK = "transposed on rank 1 only"
GAPS = "non-contiguous (every second column of a wider one)"
# Layouts in memory of the same numbers; the contract leaves out none of them.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    GAPS: lambda x: torch.stack([x, x + 9], -1).flatten(-2)[..., ::2],
    ONE_RANK: lambda x: x.mT.contiguous().mT,
}


def model() -> nn.Module:
    """Return a small network, the same on every rank, whose sizes don't come out even."""
    return network(3, 5, 6, 3)


def network(*widths: int) -> nn.Module:
    """Return linear layers with GELUs between them, the same on every rank."""
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for width, next_width in pairwise(widths):
        layers += [nn.Linear(width, next_width), nn.GELU()]
    return nn.Sequential(*layers[:-1]).double()


def loss_of(out: Tensor) -> Tensor:
    """Return what is minimised."""
    return out.square().mean()
