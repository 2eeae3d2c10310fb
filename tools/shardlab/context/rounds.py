"""How the keys and values of all ranks come by, and how their gradients get home.

Each moves the same bytes. The ring holds two blocks at a time and sends while it computes; the
all-gather holds all n and waits for them once. `blocks` yields every rank's block with its owner,
this rank's own first; `give` takes what this rank adds to the gradient of a block just yielded, and
`take` returns the sum of what all ranks gave for this rank's own.

Dimensions: B batch, G key-value groups, s this rank's tokens, D head; 2: keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending


class Ring:
    """Blocks travel to the next rank, n − 1 times; each's gradient travels behind it.

    A gradient begins at the first rank that another's block comes to, and is home after n − 1
    messages.
    """

    def __init__(self, axis: Axis) -> None:
        """Know the ranks."""
        self._axis = axis
        self._own: Tensor | None = None
        self._arriving: tuple[Tensor, list[Pending]] | None = None

    def blocks(self, kv_2BGsD: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield each block while the next one is under way."""
        axis, block = self._axis, kv_2BGsD
        for step in range(axis.size):
            coming = self._passed_on(block, tag=0) if step < axis.size - 1 else None
            yield (axis.rank - step) % axis.size, block
            block = _arrived(coming) if coming else block

    def give(self, owner: int, grad_2BGsD: Tensor) -> None:
        """Add to the gradient that came with the block, and pass it on."""
        if owner == self._axis.rank:
            self._own = grad_2BGsD
            return
        if self._arriving is not None:
            grad_2BGsD = grad_2BGsD + _arrived(self._arriving)
        self._arriving = self._passed_on(grad_2BGsD, tag=1)

    def take(self) -> Tensor:
        """Return the sum."""
        assert self._own is not None
        return self._own if self._arriving is None else self._own + _arrived(self._arriving)

    def _passed_on(self, x: Tensor, *, tag: int) -> tuple[Tensor, list[Pending]]:
        axis, arriving = self._axis, torch.empty_like(x)
        ways = [(x, (axis.rank + 1) % axis.size)], [(arriving, (axis.rank - 1) % axis.size)]
        return arriving, axis.start_exchange(*ways, tags=[tag, tag])


class Gathered:
    """Blocks come in one all-gather; gradients go home in one reduce-scatter."""

    def __init__(self, axis: Axis) -> None:
        """Know the ranks."""
        self._axis = axis
        self._given: dict[int, Tensor] = {}

    def blocks(self, kv_2BGsD: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield each block."""
        axis, all_n2BGsD = self._axis, self._axis.all_gather(kv_2BGsD.unsqueeze(0))
        for step in range(axis.size):
            yield (owner := (axis.rank - step) % axis.size), all_n2BGsD[owner]

    def give(self, owner: int, grad_2BGsD: Tensor) -> None:
        """Keep it."""
        self._given[owner] = grad_2BGsD

    def take(self) -> Tensor:
        """Return the sum."""
        stacked = torch.stack([self._given[rank] for rank in range(self._axis.size)])
        return self._axis.reduce_scatter(stacked).squeeze(0)


def _arrived(message: tuple[Tensor, list[Pending]]) -> Tensor:
    for pending in message[1]:
        pending.wait()
    return message[0]
