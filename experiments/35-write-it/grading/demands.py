"""What is demanded of written code, and what is said where it falls short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    return x.shape == y.shape and torch.allclose(x, y, rtol=1e-9, atol=1e-12)


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
        raise WrongError(f"{what}: expected {right.dtype}, found {computed.dtype}.{cause}")
    off, times = (computed - right).abs().max().item(), (computed.norm() / right.norm()).item()
    exactly = "exactly " if equal(computed, right * round(times, 2)) else ""
    cause = cause or " That is none of the usual mistakes: compare the two, number by number."
    norm = f"its norm is {exactly}{times:.2f} x the right one"
    raise WrongError(f"{what}: off by up to {off:.2g}; {norm}.{cause}")


def leads_back(what: str, out: Tensor) -> None:
    """Demand that autograd finds its way from an output."""
    if not out.requires_grad:
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


def model() -> nn.Module:
    """Return a small network, the same on every rank, whose sizes don't come out even."""
    torch.manual_seed(1)
    sizes = [nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 3)]
    return nn.Sequential(*sizes).double()


def loss_of(out: Tensor) -> Tensor:
    """Return what is minimised."""
    return out.square().mean()
