"""Buckets: gradients that one all-reduce sums, chosen by bytes, in the order of their use.

One all-reduce for each parameter would pay the latency dozens of times a step. One for all of them
could not start before backward ends. The all-reduce of a bucket starts as soon as its last gradient
exists.

Dimension key: N parameters' elements, one after another, in one bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shardlab.comm import Pending

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
