"""Buckets: gradients that one all-reduce sums, chosen by bytes, in the order of their use.

One all-reduce for each parameter would pay the latency dozens of times a step. One for all of them
could not start before backward ends. The all-reduce of a bucket starts as soon as its last gradient
exists. A backend matches collectives by their order, so the `Reducer` launches buckets in a fixed
order, the same on every rank, whatever the order of their gradients.

Dimension key: N parameters' elements, one after another, in one bucket.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending

MIB = 2**20
FIRST_BUCKET_BYTES = 1 * MIB
BUCKET_BYTES = 25 * MIB


def assign_buckets(parameters: Sequence[Tensor], caps: Sequence[int]) -> list[list[int]]:
    """Divide `parameters`, in the order of their use, into buckets; return lists of positions.

    The parameter that fills a bucket up to its cap is its last. The first bucket of a dtype and
    device has the first cap, the second the second, and all further ones the last cap; a small
    first bucket is reduced early. A bucket has parameters of one dtype and device. Buckets are in
    the order of their first parameter.

    PyTorch's counterpart is `dist._compute_bucket_assignment_by_size`, Megatron's is in
    `_ParamAndGradBuffer` (which closes by elements, not bytes).

    Raises:
        ValueError: a cap is not positive.
    """
    if not caps or min(caps) < 1:
        raise ValueError(f"bucket sizes are bytes and at least 1; found {list(caps)}")
    full_buckets: list[list[int]] = []
    filling: dict[object, list[int]] = {}  # by kind
    full_counts: Counter[object] = Counter()
    filled_bytes: Counter[object] = Counter()  # bytes
    for position, parameter in enumerate(parameters):
        kind = (parameter.dtype, parameter.device)
        bucket = filling.setdefault(kind, [])
        bucket.append(position)
        filled_bytes[kind] += parameter.nbytes
        if filled_bytes[kind] >= caps[min(full_counts[kind], len(caps) - 1)]:
            full_buckets.append(filling.pop(kind))
            full_counts[kind] += 1
            del filled_bytes[kind]
    return sorted([*full_buckets, *filling.values()])


@dataclass(eq=False, slots=True)
class Slot:
    """One parameter's part of a bucket; its gradient is a view of it.

    Attributes:
        name: the parameter's name in errors.
        parameter: the parameter.
        arrivals: how often its gradient was accumulated in this step.
        bucket: the bucket that has the gradient now.
        view: the gradient's part of the bucket, in the parameter's shape.
    """

    name: str
    parameter: torch.nn.Parameter
    arrivals: int = 0
    bucket: Bucket = field(init=False, repr=False)
    view: Tensor = field(init=False, repr=False)


class Bucket:
    """Some parameters' gradients in one flat tensor, which one all-reduce sums.

    Attributes:
        slots: the parameters, in the order of their gradients.
        flat_N: the gradients.
        missing: the number of gradients that don't exist yet in this step.
        pending: the all-reduce, once it has started.
    """

    def __init__(self, slots: list[Slot], main_grads: torch.dtype | None = None) -> None:
        """Allocate the flat tensor and give each slot its part.

        Args:
            slots: the slots, in the order of their gradients.
            main_grads: accumulate gradients in `parameter.main_grad`, of this dtype; None for
                `.grad`.
        """
        first = slots[0].parameter
        self._main_grads = main_grads is not None
        self.slots = slots
        self.missing = len(slots)
        self.pending: Pending | None = None
        total = sum(slot.parameter.numel() for slot in slots)
        self.flat_N = torch.zeros(total, dtype=main_grads or first.dtype, device=first.device)
        begin = 0
        for slot in slots:
            end = begin + slot.parameter.numel()
            slot.bucket = self
            slot.view = self.flat_N[begin:end].view(slot.parameter.shape)
            if self._main_grads:
                slot.parameter.main_grad = slot.view  # type: ignore[attr-defined]
            begin = end

    def fold(self, slots: Iterable[Slot], *, scale: float = 1.0) -> None:
        """Move the slots' gradients into the bucket; each gradient then *is* its view.

        If `.grad` is None, autograd assigns its new tensor without a copy; otherwise it adds in
        place. So the first gradient of a step is copied once, and further ones are added in the
        bucket directly. Scaling costs no pass of its own. A `main_grad` is added to each time, and
        `.grad` is set to None; scaling is then a pass of its own.

        Args:
            slots: slots of this bucket.
            scale: the factor of the gradients.

        Raises:
            ValueError: a gradient is sparse.
        """
        with torch.no_grad():
            for slot in slots:
                gradient = slot.parameter.grad
                if self._main_grads and (gradient is None or not gradient.is_sparse):
                    if gradient is not None:  # otherwise a layer has added it to `main_grad`
                        slot.view.add_(gradient)
                        slot.parameter.grad = None
                    if scale != 1.0:
                        slot.view.mul_(scale)
                    continue
                if gradient is None:  # no gradient on this rank, but perhaps on others
                    slot.view.zero_()
                elif gradient.is_sparse:
                    raise ValueError(
                        f"{slot.name} has a sparse gradient; buckets hold dense ones: build its "
                        "embedding with sparse=False"
                    )
                elif scale != 1.0:
                    torch.mul(gradient, scale, out=slot.view)
                elif gradient is not slot.view:
                    slot.view.copy_(gradient)
                slot.parameter.grad = slot.view


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
