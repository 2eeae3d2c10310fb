"""Buckets beside PyTorch's DDP."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from grading import RANKS
from grading.demands import WrongError, drawn, loss_of, model, same, sends
from grading.watch import Watch

BUCKET = 168  # bytes
FILLED = [8 * (3 + 18), 8 * 30, 8 * (5 + 15)]
Gradients = dict[str, Tensor]


def frozen() -> torch.nn.Module:
    """Return the network with one parameter that needs no gradient."""
    network = model()
    network.get_parameter("2.bias").requires_grad_(False)
    return network


def data(step: int, rank: int) -> Tensor:
    """Return a rank's part of a batch."""
    return drawn(50 + RANKS * step + rank, 4, 3)


def gradients(network: torch.nn.Module, inner: torch.nn.Module, x: Tensor) -> Gradients:
    """Return what backward leaves in the parameters of `inner`, which `network` may wrap."""
    inner.zero_grad()
    loss_of(network(x)).backward()
    return {name: p.grad for name, p in inner.named_parameters() if p.grad is not None}


def ddp(rank: int, steps: int) -> Iterator[tuple[Gradients, Gradients]]:
    """Yield for each step this rank's own gradients, and DDP's means over all ranks."""
    alone, inner = frozen(), frozen()
    wrapped = DistributedDataParallel(inner)
    for step in range(steps):
        x = data(step, rank)
        yield gradients(alone, alone, x), gradients(wrapped, inner, x)


def replicas(code: ModuleType, rank: int, watch: Watch) -> None:
    """Compare two steps: the same gradients, in the messages asked for, while backward runs."""
    oracle = [*ddp(rank, steps=2)]
    trained = frozen()
    with watch:
        wrapped = code.Replicas(trained, bucket_bytes=BUCKET)
    sends("Replicas.__init__", watch, [], "The copies are already the same.")
    for step, (local, means) in enumerate(oracle):
        with watch:
            gradients(trained, trained, data(step, rank))
            before = len(watch.entries)
            wrapped.finish()
        for name, mean in means.items():
            same(f"step {step}, gradient of {name}", trained.get_parameter(name).grad, mean, {
                "It is this rank's own: its bucket was not sent, or not copied back.": local[name],
                "It is the sum: divide by the number of ranks.": RANKS * mean,
                "It is half the mean: it was divided twice.": mean / RANKS,
            })  # fmt: skip
        sends(f"step {step}", watch, [("all_reduce", size) for size in FILLED], (
            f"From the last parameter on, a bucket takes as many gradients as fit in {BUCKET} B: "
            "not one each, and not one too many."
        ))  # fmt: skip
        if before < len(FILLED):
            raise WrongError(
                f"step {step}: {before} of {len(FILLED)} buckets left during backward, the others "
                "after it. A bucket must leave as soon as it has the last of its gradients."
            )
