"""The gradient of a flat parameter: filled leaf by leaf, reduced at once, added to the shard's.

Dimension key: F elements of the flat parameter with padding, f = F / n those of one rank's shard.

Autograd computes each leaf's gradient as a tensor of its own. A hook after accumulation copies it
into the buffer, divided by the number of ranks and in the dtype of the reduction, and frees it: one
pass over memory while the gradient is still in the cache. (If `.grad` were a view of the buffer,
into which autograd adds, the buffer would have to be zeroed and read back.) A parameter's gradient
is accumulated after all operations that used it, so the unit's backward is over with the last leaf.

PyTorch: `_post_backward_hook` and `_reduce_grad` (fsdp/_runtime_utils.py); FSDP2: `foreach_reduce`
(_fully_shard/_fsdp_collectives.py), which copies all gradients into one buffer at the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending
from shardlab.fsdp.flat_parameter import FlatParameter
from shardlab.fsdp.life_cycle import GRADIENTS, GradientState, LifeCycle


class FlatGradient:
    """One flat parameter's gradient over the axis.

    Args:
        flat: the flat parameter.
        replicate: the axis of its replicas, over which gradients are reduced too.
        dtype: the dtype in which gradients are accumulated and reduced.
    """

    def __init__(self, flat: FlatParameter, replicate: Axis, dtype: torch.dtype) -> None:
        self.flat = flat
        self._replicate = replicate
        self._dtype = dtype
        self._share = 1 / (flat.axis.size * replicate.size)
        self._life = LifeCycle(f"the gradient of {flat.name}", GRADIENTS, GradientState.EMPTY)
        self._buffer_F: Tensor | None = None
        self._filled: set[int] = set()  # leaves whose part of the buffer has a value
        self._arrived_leaves: set[int] = set()  # leaves with a gradient in this backward
        self._pending: Pending | None = None

    @property
    def state(self) -> GradientState:
        """EMPTY, FILLING, HELD or REDUCING."""
        return self._life.state

    def accumulate(self, number: int) -> bool:
        """Add leaf `number`'s gradient; return whether it was the last one of this backward."""
        leaf = self.flat.leaves[number]
        grad = leaf.grad
        if grad is None:
            return False
        leaf.grad = None
        if self._life.state is not GradientState.FILLING:
            self._begin()
        assert self._buffer_F is not None
        view = self.flat.view(self._buffer_F, number)
        if number in self._filled:
            view.add_(grad, alpha=self._share)
        elif grad.dtype == view.dtype:
            torch.mul(grad, self._share, out=view)
        else:
            view.copy_(grad).mul_(self._share)
        self._filled.add(number)
        self._arrived_leaves.add(number)
        return len(self._arrived_leaves) == len(self.flat.leaves)

    def hold(self) -> None:
        """Hold the gradient for the next backward to add to, at the end of one without sync."""
        self._life.move("hold")
        self._arrived_leaves.clear()

    def start_reduce(self) -> None:
        """Start the reduction; leaves without a gradient count as zero."""
        if self.state is GradientState.EMPTY:
            self._begin()
        self._life.move("reduce")
        self._arrived_leaves.clear()
        assert self._buffer_F is not None
        for number in {*range(len(self.flat.leaves))} - self._filled:
            self.flat.view(self._buffer_F, number).zero_()
        for start, stop in self.flat.layout.gaps:
            self._buffer_F[start:stop].zero_()
        self._filled.clear()
        self.flat.axis.agree(f"reduce {self.flat.name}")
        self._pending = self.flat.axis.start("reduce_scatter", self._buffer_F)
        if self.flat.axis.size == 1:  # there is nothing to wait for
            self.start_replicate()

    def start_replicate(self) -> None:
        """Wait for the reduce-scatter and start the all-reduce between replicas, if any."""
        if self.state is not GradientState.REDUCING or self._buffer_F is None:
            return  # it has been started
        assert self._pending is not None
        reduced_f = self._pending.wait()
        self._buffer_F = None
        self._replicate.agree(f"reduce {self.flat.name}")
        self._pending = self._replicate.start("all_reduce", reduced_f, out=reduced_f)

    def deposit(self) -> None:
        """Wait for the reduction and add its result to the shard's `.grad`."""
        shard_f = self.flat.shard_f
        reduced_f = self._finish().to(shard_f.dtype)
        if shard_f.grad is None:
            shard_f.grad = reduced_f
        else:
            shard_f.grad.add_(reduced_f)

    def drop(self) -> None:
        """Drop the gradient; if it is being reduced, wait for that first."""
        if self.state is GradientState.REDUCING:
            self._finish()
        elif self.state is not GradientState.EMPTY:
            self._life.move("drop")
            self._arrived_leaves.clear()
            self._filled.clear()
            self._buffer_F = None

    def _finish(self) -> Tensor:
        self.start_replicate()
        self._life.move("deposit")
        assert self._pending is not None
        reduced_f = self._pending.wait()
        self._pending = None
        return reduced_f

    def _begin(self) -> None:
        if self._life.state is GradientState.REDUCING:
            # A leaf got a gradient again after its unit was done (a parameter in two reentrant
            # checkpoints): deposit the reduced gradient, and reduce the rest at the end.
            self.deposit()
        self._life.move("fill")
        if self._buffer_F is None:
            full_F = self.flat.full_F
            self._buffer_F = torch.empty(len(full_F), dtype=self._dtype, device=full_F.device)
