"""Collectives over gloo that the first rank relays: for a host with more ranks than cores.

On such a host messages are sent and received one after another, at about 50 µs each, and their
number decides what a collective costs. gloo's ring among n ranks cuts a tensor into 2n pieces, each
of which is sent 2(n-1) times. An exchange is n(n-1) messages. A relay is 2(n-1) messages: every
rank sends its input to the first rank, which sends back the result. The number of bytes is that of
the ring, but all of them pass through one rank. Between hosts, or with a core for each rank, that
rank would be the bottleneck.

The first rank sends the results inside its `wait`. A rank that starts a relay must therefore wait
for it before it does anything that another rank may wait for.

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
from shardlab.links.fast_gloo.exchange import reduce_rows

# For each collective and number of ranks: the largest x, in bytes, for which a relay is used on an
# oversubscribed host. Measured on two cores like exchange.CHOICES, by the same benchmark.
MAX_BYTES: dict[str, dict[int, float]] = {
    "all_reduce": {4: 2 << 20, 8: 2 << 20},
    "all_gather": {4: 256 << 10, 8: 512 << 10},
    "reduce_scatter": {4: 512 << 10, 8: 1 << 20},
}
_TAG = 1 << 30  # the first tag of relays' messages; an axis's own messages have smaller tags
_TAGS = 1 << 20  # so many relays may be under way, each with its own tag, in any order of waits


@dataclass(eq=False, slots=True)
class Relay:
    """A relayed collective that was started.

    Args:
        works: gloo's works for this rank's sends and receives.
        keep: tensors that must stay alive until the works are done.
        timeout: how long a message may take; gloo ignores the group's timeout for messages.
        answer: on the first rank, a function that sends the results; None on the other ranks.
    """

    _works: list[Any]
    _keep: Sequence[Tensor]
    _timeout: timedelta
    _answer: Callable[[], list[Any]] | None = None

    def wait(self) -> None:
        """Block until the result is complete; the first rank also sends the results; idempotent."""
        self._finish()
        answer, self._answer = self._answer, None
        if answer is not None:
            with tracing.paused():
                self._works = answer()
            self._finish()
        self._keep = ()

    def _finish(self) -> None:
        while self._works:
            self._works[0].wait(self._timeout)
            self._works.pop(0)


def is_faster(collective: str, x: Tensor, size: int) -> bool:
    """Return whether a relay is the fastest `collective` of `x` on an oversubscribed host."""
    table = MAX_BYTES[collective]
    measured = min((ranks for ranks in table if ranks >= size > 2), default=0)
    return x.is_cpu and x.nbytes <= table.get(measured, -1)


def start(
    kind: str, group: Any, x: Tensor, out: Tensor, op: str, *, timeout: timedelta, number: int = 0
) -> Relay:
    """Start an "all_reduce", "all_gather" or "reduce_scatter".

    Args:
        kind: the collective.
        group: torch's process group on gloo.
        x: contiguous, of the same shape on every rank.
        out: contiguous; `x` itself is allowed for an all-reduce.
        op: sum, mean or max; "mean" only adds.
        timeout: how long a message may take.
        number: this relay's number in its group, the same on every rank.
    """
    size, tag = group.size(), _TAG + number % _TAGS
    if group.rank():
        # The receive is posted before the send, so that it is there when the answer arrives. Even
        # if `out` is `x`, the answer can't arrive before all of `x` was sent.
        coming = group.recv([out], 0, tag)
        return Relay([group.send([x], 0, tag), coming], [x, out], timeout)
    if kind == "all_gather":
        rows = list(out.view(size, x.numel()).unbind())
    else:
        rows = [x.view(-1), *torch.empty(size - 1, x.numel(), dtype=x.dtype).unbind()]

    def answer() -> list[Any]:
        answers = [out] * size
        if kind == "all_gather":
            rows[0].copy_(x.view(-1))
        elif kind == "all_reduce":
            reduce_rows(rows, out.view(-1), op)
        else:
            reduce_rows(rows, rows[1], op)
            answers = list(rows[1].view(size, out.numel()).unbind())
            out.view(-1).copy_(answers[0])
        return [group.send([answers[rank]], rank, tag) for rank in range(1, size)]

    coming = [group.recv([rows[rank]], rank, tag) for rank in range(1, size)]
    return Relay(coming, [x, *rows], timeout, answer)
