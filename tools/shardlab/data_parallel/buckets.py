"""Which gradients travel together: parameters cut into buckets, by bytes, in order of their use.

One all-reduce a parameter would pay the latency dozens of times a step; one for all could not start
before backward ends. Buckets are the middle: each leaves as soon as its last gradient is there.

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


def assign(parameters: Sequence[Tensor], caps: Sequence[int]) -> list[list[int]]:
    """Cut `parameters`, in the order of their use, into buckets; return lists of positions.

    A bucket is closed by the parameter that fills it up to its cap. The first bucket of a dtype and
    device has the first cap, and so on, the last cap holding for all that follow: a small first
    bucket leaves early. Parameters of different dtype or device never share one. Buckets come in
    the order of their first parameter.

    PyTorch's counterpart is `dist._compute_bucket_assignment_by_size`, Megatron's is in
    `_ParamAndGradBuffer` (which closes by elements, not bytes).

    Raises:
        ValueError: a cap is not positive.
    """
    if not caps or min(caps) < 1:
        raise ValueError(f"bucket sizes are bytes and at least 1; found {list(caps)}")
    done: list[list[int]] = []
    filling: dict[object, list[int]] = {}  # by kind
    closed: Counter[object] = Counter()
    held: Counter[object] = Counter()  # bytes
    for position, parameter in enumerate(parameters):
        kind = (parameter.dtype, parameter.device)
        bucket = filling.setdefault(kind, [])
        bucket.append(position)
        held[kind] += parameter.nbytes
        if held[kind] >= caps[min(closed[kind], len(caps) - 1)]:
            done.append(filling.pop(kind))
            closed[kind] += 1
            del held[kind]
    return sorted([*done, *filling.values()])


@dataclass(eq=False, slots=True)
class Slot:
    """One parameter's place: its gradient is a view into its bucket.

    Attributes:
        name: what errors call the parameter.
        parameter: the leaf whose gradient it is.
        arrivals: how often its gradient has been accumulated in this step.
        bucket: where it stands now.
        view: its part of the bucket, in the parameter's shape.
    """

    name: str
    parameter: torch.nn.Parameter
    arrivals: int = 0
    bucket: Bucket = field(init=False, repr=False)
    view: Tensor = field(init=False, repr=False)


class Bucket:
    """Some parameters' gradients in one flat tensor that is all-reduced in one go.

    Attributes:
        slots: the parameters, in the order in which they lie.
        flat_N: their gradients.
        missing: how many of them are not there yet in this step.
        pending: the all-reduce, once it has started.
    """

    def __init__(self, slots: list[Slot], main_grads: torch.dtype | None = None) -> None:
        """Lay out the slots and point each at its part.

        Args:
            slots: in the order in which they are to lie.
            main_grads: gather gradients in `parameter.main_grad`, of this dtype, not in `.grad`.
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
        """Move the slots' gradients into the bucket; from here on each gradient *is* its view.

        Autograd hands its fresh tensor to a gradient that is None (no copy yet), and adds in place
        to one that is there. So the first gradient of a step is copied, once, and what follows it
        in accumulation lands in the bucket by itself. Scaling costs no pass of its own. A
        `main_grad` is added to, time after time, and `.grad` is let go; scaling is a pass.

        Args:
            slots: of this bucket.
            scale: what the gradients are multiplied by on their way.

        Raises:
            ValueError: a gradient is sparse.
        """
        with torch.no_grad():
            for slot in slots:
                gradient = slot.parameter.grad
                if self._main_grads and (gradient is None or not gradient.is_sparse):
                    if gradient is not None:  # else a layer has added it to `main_grad` itself
                        slot.view.add_(gradient)
                        slot.parameter.grad = None
                    if scale != 1.0:
                        slot.view.mul_(scale)
                    continue
                if gradient is None:  # backward did not reach it here, but perhaps elsewhere
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
