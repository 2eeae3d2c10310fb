"""The buckets of a step on their way: one order on every rank, launched in it, and waited for.

A backend matches collectives by their order, so no bucket overtakes another, whatever order its
gradients come in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shardlab.comm import Axis
from shardlab.data_parallel.buckets import Bucket, Slot, assign


class Reducer:
    """Launches a bucket's all-reduce when its gradients, and those of all before it, are there.

    Args:
        slots: the parameters, in the order of the forward pass.
        axis: over which gradients are summed.
        caps: sizes of the buckets in bytes, the last for all that follow.
        mean: divide by the ranks that share the batch.
        main_grads: the dtype of gradients that are gathered in `main_grad`.
        batch: those ranks.
        device: of the slots' gradients; ranks without slots count tokens with the others.

    Attributes:
        buckets: in the order in which they are launched.
    """

    def __init__(
        self, slots: Sequence[Slot], axis: Axis, *, caps: Sequence[int], mean: bool,
        main_grads: torch.dtype | None, batch: Axis, device: torch.device,
    ) -> None:  # fmt: skip
        """Lay out the buckets as if backward met the parameters in reverse."""
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
        """Take note that the last gradient of `slot` is there."""
        if self._arrived is not None:
            self._arrived.append(slot)
        slot.bucket.missing -= 1
        if slot.bucket.missing == 0:
            self._launch()

    def collect(self, tokens: int | Tensor | float | None) -> None:
        """Do what is left of a step's collectives, and be ready for the next step.

        After the first the ranks agree on the order of the buckets.

        Args:
            tokens: of this rank's share of the batch, by whose sum to divide; None: by nothing.
        """
        self._launch(everything=True)
        total = None if tokens is None else self._total(tokens)
        for bucket in self.buckets:
            assert bucket.pending is not None
            bucket.pending.wait()
            if total is not None:
                bucket.flat_N.div_(total)
            bucket.missing = len(bucket.slots)
            bucket.pending = None
        if self._arrived:
            self._next_order, self._arrived = self._agreed_order(self._arrived), None
        for slot in self._slots:
            slot.arrivals = 0
        self._launched = 0

    def give_up(self, tokens: float | None) -> None:
        """Do it with NaN, so that the other ranks don't take the next step's for this one's."""
        for bucket in self.buckets[self._launched :]:
            bucket.flat_N.fill_(math.nan)
            self._start(bucket)
        if self._arrived is not None:
            self._arrived = [slot for bucket in self.buckets for slot in bucket.slots]
        self.collect(tokens)

    def follow_next_order(self) -> None:
        """Lay the buckets out anew, if so agreed; not while anything lies in them."""
        if self._next_order is not None:
            self._lay_out(self._next_order)
            self._next_order = None

    def _launch(self, everything: bool = False) -> None:
        """Start the all-reduces of the complete buckets that none incomplete stands before."""
        for bucket in self.buckets[self._launched :]:
            if bucket.missing and not everything:
                return
            bucket.fold(bucket.slots, scale=self._scale)
            self._start(bucket)

    def _start(self, bucket: Bucket) -> None:
        bucket.pending = self._axis.start("all_reduce", bucket.flat_N, out=bucket.flat_N)
        self._launched += 1

    def _total(self, tokens: int | Tensor | float) -> Tensor:
        mine = torch.as_tensor(tokens, dtype=torch.float64, device=self._device).reshape(1)
        total = self._batch.all_reduce(mine)[0]  # without dimensions it does not promote gradients
        return total.where(total != 0, 1)  # of no token at all the sum is 0, and no 0 / 0

    def _agreed_order(self, arrived: list[Slot]) -> list[Slot] | None:
        place = {id(slot): i for i, slot in enumerate(self._slots)}
        order = torch.tensor([place[id(s)] for s in arrived], device=self._device)
        agreed = [self._slots[i] for i in self._axis.broadcast(order).tolist()]
        now = [slot for bucket in self.buckets for slot in bucket.slots]
        return None if agreed == now else agreed

    def _lay_out(self, order: Sequence[Slot]) -> None:
        groups = assign([slot.parameter for slot in order], self._caps)
        self.buckets = [Bucket([order[i] for i in group], self._main_grads) for group in groups]
