"""Launches the all-reduces of a step's buckets, in the same order on every rank; waits for them.

A backend matches collectives by their order, so buckets are launched in a fixed order, whatever the
order of their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shardlab.comm import Axis
from shardlab.data_parallel.buckets import Bucket, Slot, assign_buckets


class Reducer:
    """Launches a bucket's all-reduce once its gradients, and those of all buckets before it, exist.

    Args:
        slots: the parameters, in the order of the forward pass.
        axis: the axis over which gradients are summed.
        caps: sizes of the buckets in bytes, the last for all further ones.
        mean: whether to divide by the number of ranks that share the batch.
        main_grads: the dtype of `main_grad`, if gradients are accumulated there.
        batch: the ranks that share the batch.
        device: the device of the gradients; ranks without slots need it to sum tokens.

    Attributes:
        buckets: the buckets, in the order in which they are launched.
    """

    def __init__(
        self, slots: Sequence[Slot], axis: Axis, *, caps: Sequence[int], mean: bool,
        main_grads: torch.dtype | None, batch: Axis, device: torch.device,
    ) -> None:  # fmt: skip
        """Assign the buckets for gradients in the reverse order of the parameters."""
        self._slots = slots
        self._axis = axis
        self._caps = caps
        self._scale = 1.0 / batch.size if mean else 1.0
        self._batch = batch
        self._device = device
        self._main_grads = main_grads
        self._launched = 0
        self._arrived: list[Slot] | None = []  # in the first step only
        self._next_order: list[Slot] | None = None
        self.buckets: list[Bucket] = []
        self._lay_out(slots[::-1])

    def complete(self, slot: Slot) -> None:
        """Count the last gradient of `slot`; launch its bucket if that was the last missing one."""
        if self._arrived is not None:
            self._arrived.append(slot)
        slot.bucket.missing -= 1
        if slot.bucket.missing == 0:
            self._launch()

    def collect(self, tokens: int | Tensor | float | None) -> None:
        """Run the remaining collectives of a step and wait for all, ready for the next step.

        After the first step the ranks also agree on the order of the buckets.

        Args:
            tokens: the tokens of this rank's share of the batch; gradients are divided by all
                ranks' sum of them. None for no division.
        """
        self._launch(everything=True)
        total = None if tokens is None else self._sum_tokens(tokens)
        for bucket in self.buckets:
            assert bucket.pending is not None
            bucket.pending.wait()
            if total is not None:
                bucket.flat_N.div_(total)
            bucket.missing = len(bucket.slots)
            bucket.pending = None
        if self._arrived:
            self._next_order, self._arrived = self._agree_on_order(self._arrived), None
        for slot in self._slots:
            slot.arrivals = 0
        self._launched = 0

    def give_up(self, tokens: float | None) -> None:
        """Run the remaining collectives with NaN, so that other ranks don't sum the next step's."""
        for bucket in self.buckets[self._launched :]:
            bucket.flat_N.fill_(math.nan)
            self._start(bucket)
        if self._arrived is not None:
            self._arrived = [slot for bucket in self.buckets for slot in bucket.slots]
        self.collect(tokens)

    def follow_next_order(self) -> None:
        """Assign the buckets again if the ranks agreed on another order; they must be empty."""
        if self._next_order is not None:
            self._lay_out(self._next_order)
            self._next_order = None

    def _launch(self, everything: bool = False) -> None:
        """Start the all-reduces of complete buckets, up to the first incomplete one."""
        for bucket in self.buckets[self._launched :]:
            if bucket.missing and not everything:
                return
            bucket.fold(bucket.slots, scale=self._scale)
            self._start(bucket)

    def _start(self, bucket: Bucket) -> None:
        bucket.pending = self._axis.start("all_reduce", bucket.flat_N, out=bucket.flat_N)
        self._launched += 1

    def _sum_tokens(self, tokens: int | Tensor | float) -> Tensor:
        local = torch.as_tensor(tokens, dtype=torch.float64, device=self._device).reshape(1)
        total = self._batch.all_reduce(local)[0]  # a 0-dim tensor doesn't promote gradients
        return total.where(total != 0, 1)  # without tokens the sum of gradients is 0; avoid 0 / 0

    def _agree_on_order(self, arrived: list[Slot]) -> list[Slot] | None:
        positions = {id(slot): i for i, slot in enumerate(self._slots)}
        order = torch.tensor([positions[id(s)] for s in arrived], device=self._device)
        agreed = [self._slots[i] for i in self._axis.broadcast(order).tolist()]
        current = [slot for bucket in self.buckets for slot in bucket.slots]
        return None if agreed == current else agreed

    def _lay_out(self, order: Sequence[Slot]) -> None:
        groups = assign_buckets([slot.parameter for slot in order], self._caps)
        self.buckets = [Bucket([order[i] for i in group], self._main_grads) for group in groups]
