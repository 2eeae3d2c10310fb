"""What happens around each unit's forward and backward: gathers, releases, reductions.

    before a unit's forward    gather it, unless it is full; start the gathers that come next
    after it                   hook its outputs; release it, if the strategy says so
    an output's gradient came  gather it again; BACKWARD_PRE: start the gather of the next
    its last leaf's came       release it; BACKWARD_POST: start that gather; start the reduction
    backward is over           reduce what is left, wait for all, release what is left

Two kinds of hook find these moments in backward, both on tensors: on a unit's *outputs* (the
gradient of an output is there before any of the unit's parameters is needed) and, after
accumulation, on its *leaves* (a parameter's gradient is accumulated once a backward, after every
operation that used it, however often the unit ran). So a unit that ran twice is reduced once, one
of which an output or a parameter is unused is reduced at the end, and nothing need be told in
advance. An autograd Function around a unit's inputs, FSDP2's way, fires later, once a use, and not
at all where no input wants a gradient. Frozen parameters have no gradient to wait for; there hooks
on the unit's inputs say when they are not needed any more.

What this asks of a module: its output tensors are in tuples, lists, mappings or dataclasses, and
none of its own trainable parameters is used detached (no gradient would tell of that use).

A forward inside a running backward is a recomputation (activation checkpointing of either kind):
the unit is gathered, kept for the backward that follows, and nothing is recorded.

Streams: on CUDA everything is issued on the current stream; NCCL's own stream waits for it at each
start, and `wait` makes it wait for NCCL's. So memory is given and freed in the order of one stream
and needs no events. PyTorch adds streams for the all-gather, its copies and the reduction. Those
let an all-gather that is issued late begin before the computation queued ahead of it; here only
what is fetched ahead (forward_prefetch, BACKWARD_PRE) overlaps with computation. They would also
take casts and copies off the computing stream.

PyTorch: fsdp/_runtime_utils.py; `FSDPState` and `FSDPParamGroup` in fsdp/_fully_shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils.hooks import RemovableHandle

from shardlab.comm import Axis
from shardlab.fsdp.backward import BackwardPass
from shardlab.fsdp.execution_order import ExecutionOrder
from shardlab.fsdp.flat.gradient import FlatGradient
from shardlab.fsdp.gathers import Gathers
from shardlab.fsdp.life_cycle import GradientState
from shardlab.fsdp.policies import BackwardPrefetch
from shardlab.fsdp.tensors import before_backward_of, on_gradient, tensors_of
from shardlab.fsdp.unit import Unit
from shardlab.layers.engine import inside_backward


class Runtime:
    """Drives the units of one model.

    Args:
        units: the root first.
        axes: whose ranks run the same units.
        reshards_after_forward: whether units other than the root release after forward.
        backward_prefetch, forward_prefetch: what is fetched ahead.

    Attributes:
        sync: whether a backward reduces gradients, or only holds them.
        gathers: fills and releases units.
        order: of forward.
    """

    def __init__(
        self, units: Sequence[Unit], axes: Sequence[Axis], reshards_after_forward: bool,
        backward_prefetch: BackwardPrefetch | None, forward_prefetch: bool,
    ) -> None:  # fmt: skip
        self.units = units
        self.root = units[0]
        self.sync = True
        self._axes = [axis for axis in axes if axis.size > 1]
        self.gathers = Gathers(self.units)
        self.order = ExecutionOrder()
        self._reshards_after_forward = reshards_after_forward
        self._backward_prefetch = backward_prefetch
        self._forward_prefetch = forward_prefetch
        self._running: dict[Unit, int] = {}  # how deep each runs at present
        self._left: list[Unit] = []  # in the order in which their forwards ended
        self._left_is_old = False
        self._on_cpu = all(f.shard_f.device.type == "cpu" for unit in units for f in unit.flats)
        held = {unit: {*unit.module.modules()} - {unit.module} for unit in units}
        self._outer = {u for u in units if any(v.module in held[u] for v in units)}
        self._versions: dict[Unit, tuple[int, ...]] = {}  # of the shards that forward used
        self._watches: list[tuple[Unit, RemovableHandle]] = []  # inputs of units that hold frozen
        self._backward: BackwardPass | None = None
        for unit in units:
            for gradient in unit.gradients:
                for number, leaf in enumerate(gradient.flat.leaves):
                    hook = partial(self._leaf_arrived, unit, gradient, number)
                    leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    # ------------------------------------------------------------------ forward

    def before_forward(self, unit: Unit, _: nn.Module, args: Any, kwargs: Any) -> None:
        """Make `unit` full, and start what comes next; a hook before its module's forward."""
        if inside_backward():  # a recomputation
            self._this_backward()
            self.gathers.fill(unit)
            return
        if unit is self.root:
            self._begin_forward()
        if not self.order.enter(unit) and self._reshards_after_forward:
            self.gathers.release_ahead(but=unit)
        self._running[unit] = self._running.get(unit, 0) + 1
        ahead = self.order.following() if self._forward_prefetch else ()
        self.gathers.fill(unit, ahead)
        if torch.is_grad_enabled():
            self._versions[unit] = unit.versions
            if unit.holds_frozen:
                for value in tensors_of((args, kwargs)):
                    if value.requires_grad:
                        handle = on_gradient(value, lambda _: self._this_backward().arrived(unit))
                        self._watches.append((unit, handle))

    def after_forward(self, unit: Unit, _: nn.Module, __: Any, outputs: Any) -> None:
        """Hook `outputs` for backward; release `unit` unless it must stay. A hook after forward.

        Raises:
            RuntimeError: parameters train and no output would tell of a backward.
        """
        if inside_backward():
            return
        self._running[unit] -= 1
        keeps = torch.is_grad_enabled() and self._hook(unit, outputs)
        if keeps:
            self._left.append(unit)
            keeps = unit is self.root or not self._reshards_after_forward
        if not keeps and not self._running[unit]:
            self.gathers.release(unit)
        if unit is self.root:
            self.order.close()
            self.gathers.release_ahead()
            if torch.is_grad_enabled():
                self.order.end(self._axes)

    def _begin_forward(self) -> None:
        self.order.compare()
        if self._backward is not None:
            self._recover()
        if self._left_is_old:
            self._left, self._left_is_old = [], False
        self._running = {}
        trains = torch.is_grad_enabled()
        keeps = trains and not self._reshards_after_forward
        self.order.begin(self._axes, trains=trains, fetch=self.gathers.fetch if keeps else None)
        held = (g.state is GradientState.HELD for unit in self.units for g in unit.gradients)
        if self.sync and not any(held):
            # What an earlier forward left full may be older than the shards: a fused optimizer
            # leaves no trace in their version counters. So it lives on only while gradients are
            # being accumulated, when no step is due.
            self.gathers.release_all()

    def _hook(self, unit: Unit, outputs: Any) -> bool:
        versions = self._versions[unit]
        wanted = [output for output in tensors_of(outputs) if output.requires_grad]
        for output in wanted:
            before_backward_of(output, lambda _: self._this_backward().reach(unit, versions))
        trains = any(gradient.flat.shard_f.requires_grad for gradient in unit.gradients)
        if not wanted and trains:
            raise RuntimeError(
                f"unit {unit.name or '(root)'} ran with gradients enabled and returned no tensor "
                "that wants one, so its backward would go unnoticed: return tensors, in tuples, "
                "lists, mappings or dataclasses, or call it under torch.no_grad()"
            )
        return bool(wanted)

    # ------------------------------------------------------------------ backward

    def _this_backward(self) -> BackwardPass:
        """Return the backward that runs, begun now if need be; autograd calls back at its end."""
        if self._backward is None:
            if self._on_cpu:
                # Sizes that differ would end the process, in gloo. On a GPU this would wait for the
                # whole forward: there the next forward, or the norm, compares.
                self.order.compare()
            Variable._execution_engine.queue_callback(self._end_backward)
            self._backward = BackwardPass(
                units=self.units, outer=self._outer, left=self._left,
                watched=[unit for unit, _ in self._watches],
                gathers=self.gathers, prefetch=self._backward_prefetch, sync=self.sync,
                # As in PyTorch: what forward keeps, a backward without sync keeps for the next.
                keeps=not self.sync and not self._reshards_after_forward,
            )  # fmt: skip
        return self._backward

    def _leaf_arrived(self, unit: Unit, gradient: FlatGradient, number: int, _: Tensor) -> None:
        backward = self._this_backward()
        if gradient.fill(number):
            backward.complete(unit, gradient)

    def _end_backward(self) -> None:
        if self._backward is not None:
            self._backward.end()
            self._forget()

    def _forget(self) -> None:
        for _, handle in self._watches:
            handle.remove()
        self._watches = []
        self._left_is_old = True
        self._backward = None

    def _recover(self) -> None:
        """A backward raised: release what it left full, forget what it left half done."""
        self.gathers.release_all()
        for unit in self.units:
            for gradient in unit.gradients:
                gradient.drop()
        self._forget()
