"""How a rank receives every rank's keys and values, and sends back their gradients.

Both classes move the same number of bytes. The ring holds two blocks at a time and sends while it
computes; the all-gather holds all n blocks and waits for them once. `blocks` yields every rank's
block with its owner, this rank's first. `add_gradient` adds this rank's contribution to the
gradient of the block that was just yielded. `collect_gradient` returns the sum of all ranks'
contributions to the gradient of this rank's block.

Dimensions: B batch, G key-value groups, s this rank's tokens, D head; 2: keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending


class Ring:
    """Sends blocks to the next rank, n − 1 times; each block's gradient follows it.

    A gradient starts at the first rank that receives another rank's block, and reaches that
    block's owner after n − 1 messages.
    """

    def __init__(self, axis: Axis) -> None:
        """Start without blocks."""
        self._axis = axis
        self._local_gradient: Tensor | None = None
        self._arriving: tuple[Tensor, list[Pending]] | None = None

    def blocks(self, kv_2BGsD: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield each block while the next one is being sent."""
        axis, block = self._axis, kv_2BGsD
        for step in range(axis.size):
            incoming = self._pass_on(block, tag=0) if step < axis.size - 1 else None
            yield (axis.rank - step) % axis.size, block
            block = _wait_for(incoming) if incoming else block

    def add_gradient(self, owner: int, grad_2BGsD: Tensor) -> None:
        """Add to the gradient that arrives with the block, and send the sum to the next rank."""
        if owner == self._axis.rank:
            self._local_gradient = grad_2BGsD
            return
        if self._arriving is not None:
            grad_2BGsD = grad_2BGsD + _wait_for(self._arriving)
        self._arriving = self._pass_on(grad_2BGsD, tag=1)

    def collect_gradient(self) -> Tensor:
        """Return the gradient of this rank's block."""
        assert self._local_gradient is not None
        return (
            self._local_gradient
            if self._arriving is None
            else self._local_gradient + _wait_for(self._arriving)
        )

    def _pass_on(self, x: Tensor, *, tag: int) -> tuple[Tensor, list[Pending]]:
        axis, received = self._axis, torch.empty_like(x)
        messages = [(x, (axis.rank + 1) % axis.size)], [(received, (axis.rank - 1) % axis.size)]
        return received, axis.start_exchange(*messages, tags=[tag, tag])


class AllGather:
    """Gathers all blocks in one all-gather; reduces the gradients in one reduce-scatter."""

    def __init__(self, axis: Axis) -> None:
        """Start without blocks."""
        self._axis = axis
        self._gradients: dict[int, Tensor] = {}

    def blocks(self, kv_2BGsD: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield each block."""
        axis, all_n2BGsD = self._axis, self._axis.all_gather(kv_2BGsD.unsqueeze(0))
        for step in range(axis.size):
            yield (owner := (axis.rank - step) % axis.size), all_n2BGsD[owner]

    def add_gradient(self, owner: int, grad_2BGsD: Tensor) -> None:
        """Store the gradient of the owner's block."""
        self._gradients[owner] = grad_2BGsD

    def collect_gradient(self) -> Tensor:
        """Return the gradient of this rank's block."""
        stacked = torch.stack([self._gradients[rank] for rank in range(self._axis.size)])
        return self._axis.reduce_scatter(stacked).squeeze(0)


def _wait_for(message: tuple[Tensor, list[Pending]]) -> Tensor:
    for pending in message[1]:
        pending.wait()
    return message[0]
