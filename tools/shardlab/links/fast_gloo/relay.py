"""Collectives over gloo by way of the first rank: for a host with more ranks than cores.

There a collective costs what its messages cost to send and to be woken by, one after another: some
50 µs each, whoever sends them. gloo's ring among n ranks cuts a tensor into 2n pieces, and each
travels 2(n-1) times; an exchange is n(n-1) messages. By way of one rank there are 2(n-1): every
rank sends it all that it has, and gets back what it must have. The bytes are those of the ring, but
all of them through one rank: between hosts, or with a core for each rank, that would be the
bottleneck.

The first rank's second half happens inside its `wait`. So whoever starts one of these must wait for
it before doing anything that another rank may be waiting for.

Dimension key: N ranks, K elements of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from shardlab.comm import tracing
from shardlab.links.fast_gloo.exchange import join

# For each collective and number of ranks: up to how many bytes of x a relay is used on a crowded
# host. Measured on two cores as exchange.CHOICES is, and by the same benchmark.
UP_TO: dict[str, dict[int, float]] = {
    "all_reduce": {4: 2 << 20, 8: 2 << 20},
    "all_gather": {4: 256 << 10, 8: 512 << 10},
    "reduce_scatter": {4: 512 << 10, 8: 1 << 20},
}
_TAG = 1 << 30  # of our messages, apart from those that an axis sends by itself
_TAGS = 1 << 20  # relays under way have each a tag of their own, whatever is waited for first


@dataclass(eq=False, slots=True)
class Relay:
    """A collective under way by way of the first rank.

    Args:
        works: gloo's, of what this rank has sent and will receive.
        patience: how long a message may take; gloo forgets the group's timeout for messages.
        answer: on the first rank, what sends the others theirs, once all have sent; else None.
    """

    _works: list[Any]
    _keep: Sequence[Tensor]
    _patience: timedelta
    _answer: Callable[[], list[Any]] | None = None

    def wait(self) -> None:
        """Block until the result is there; on the first rank, make it and send it; idempotent."""
        self._finish()
        answer, self._answer = self._answer, None
        if answer is not None:
            with tracing.paused():
                self._works = answer()
            self._finish()
        self._keep = ()

    def _finish(self) -> None:
        while self._works:
            self._works[0].wait(self._patience)
            self._works.pop(0)


def suits(collective: str, x: Tensor, size: int) -> bool:
    """Whether a relay beats gloo's own `collective` of `x` and an exchange, on a crowded host."""
    table = UP_TO[collective]
    measured = min((ranks for ranks in table if ranks >= size > 2), default=0)
    return x.is_cpu and x.nbytes <= table.get(measured, -1)


def start(
    kind: str, group: Any, x: Tensor, out: Tensor, op: str, *, patience: timedelta, number: int = 0
) -> Relay:
    """Start an "all_reduce", "all_gather" or "reduce_scatter".

    Args:
        kind: which.
        group: torch's process group on gloo.
        x: contiguous, of the same shape on every rank.
        out: contiguous; of an all-reduce it may be `x`.
        op: sum, mean or max; "mean" only adds.
        patience: how long a message may take.
        number: of this relay among the group's, the same on every rank.
    """
    size, tag = group.size(), _TAG + number % _TAGS
    if group.rank():
        # Posted before the sending, so that the answer finds its place. Where `out` is `x`, the
        # answer can't come before all of `x` is there.
        coming = group.recv([out], 0, tag)
        return Relay([group.send([x], 0, tag), coming], [x, out], patience)
    if kind == "all_gather":
        rows = list(out.view(size, x.numel()).unbind())
    else:
        rows = [x.view(-1), *torch.empty(size - 1, x.numel(), dtype=x.dtype).unbind()]

    def answer() -> list[Any]:
        answers = [out] * size
        if kind == "all_gather":
            rows[0].copy_(x.view(-1))
        elif kind == "all_reduce":
            join(rows, out.view(-1), op)
        else:
            join(rows, rows[1], op)
            answers = list(rows[1].view(size, out.numel()).unbind())
            out.view(-1).copy_(answers[0])
        return [group.send([answers[rank]], rank, tag) for rank in range(1, size)]

    coming = [group.recv([rows[rank]], rank, tag) for rank in range(1, size)]
    return Relay(coming, [x, *rows], patience, answer)
