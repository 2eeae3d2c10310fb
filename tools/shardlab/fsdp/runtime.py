"""The hooks around each unit's forward and backward: gathers, releases, reductions.

    before a unit's forward    gather it, unless it is unsharded; prefetch the next unit
    after it                   hook its outputs; release it, if the strategy says so
    an output has a gradient   gather the unit again; BACKWARD_PRE: prefetch the next
    its last leaf has one      release it; BACKWARD_POST: prefetch the next; start the reduction
    backward is over           reduce the rest, wait for all, release the rest

Two kinds of tensor hook find these moments in backward: hooks on a unit's *outputs* (an output's
gradient exists before any of the unit's parameters is needed), and hooks after accumulation on its
*leaves* (a parameter's gradient is accumulated once a backward, after all operations that used it,
however often the unit ran). So a unit that ran twice is reduced once, a unit with an unused output
or parameter is reduced at the end, and no unit needs a declaration. An autograd Function around a
unit's inputs, as in FSDP2, is called later, once for each use, and not at all if no input needs a
gradient. Frozen parameters have no gradient to wait for; hooks on the unit's inputs find out when
they aren't needed any more.

A module must return its output tensors in tuples, lists, mappings or dataclasses. It must not use
its trainable parameters detached, because no gradient would show that use.

A forward inside a running backward is a recomputation (activation checkpointing of either kind):
the unit is gathered and kept for the backward that follows, and nothing is recorded.

Streams: on CUDA everything runs on the current stream. NCCL's own stream waits for it at each
start, and `wait` makes the current stream wait for NCCL's. Memory is thus allocated and freed in
the order of one stream and needs no events. PyTorch adds streams for the all-gather, its copies and
the reduction. With them an all-gather that is issued late can begin before the computation that was
queued earlier. Here only prefetched units (forward_prefetch, BACKWARD_PRE) overlap with
computation. Further streams would also take casts and copies off the computing stream.

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
from shardlab.fsdp.backward import BackwardPass, before_backward_of, on_gradient, tensors_of
from shardlab.fsdp.flat_gradient import FlatGradient
from shardlab.fsdp.gathers import ExecutionOrder, Gathers
from shardlab.fsdp.life_cycle import GradientState
from shardlab.fsdp.policies import BackwardPrefetch
from shardlab.fsdp.unit import Unit
from shardlab.layers.engine import inside_backward


class Runtime:
    """Runs the gathers, releases and reductions of a model's units.

    Args:
        units: the units, the root first.
        axes: the axes whose ranks must run the same units.
        reshards_after_forward: whether units other than the root are released after forward.
        backward_prefetch: when the next unit of backward is gathered.
        forward_prefetch: whether the next unit of forward is gathered early.

    Attributes:
        sync: whether a backward reduces gradients; otherwise it holds them.
        gathers: unshards, prefetches and releases units.
        order: the units' order in forward.
    """

    def __init__(
        self, units: Sequence[Unit], axes: Sequence[Axis], reshards_after_forward: bool,
        backward_prefetch: BackwardPrefetch | None, forward_prefetch: bool,
    ) -> None:  # fmt: skip
        self.units = units
        self.root = units[0]
        self.sync = True
        self._axes = [axis for axis in axes if axis.size > 1]
        self.gathers = Gathers(self.units, forward_prefetch, backward_prefetch)
        self.order = ExecutionOrder()
        self._reshards_after_forward = reshards_after_forward
        self._running: dict[Unit, int] = {}  # how often each is running now
        self._forward_order: list[Unit] = []  # in the order in which their forwards ended
        self._forward_order_is_old = False  # whether its backward is over
        self._compares_at_once = all(axis.gathers_on_host for axis in self._axes)
        inner_modules = {unit: {*unit.module.modules()} - {unit.module} for unit in units}
        self._outer = {u for u in units if any(v.module in inner_modules[u] for v in units)}
        self._versions: dict[Unit, tuple[int, ...]] = {}  # of the shards at the forward
        # Hooks on inputs of units with frozen parameters.
        self._watches: list[tuple[Unit, RemovableHandle]] = []
        self._backward: BackwardPass | None = None
        for unit in units:
            for gradient in unit.gradients:
                for number, leaf in enumerate(gradient.flat.leaves):
                    hook = partial(self._accumulate_leaf, unit, gradient, number)
                    leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    # ------------------------------------------------------------------ forward

    def before_forward(self, unit: Unit, _: nn.Module, args: Any, kwargs: Any) -> None:
        """Unshard `unit` and prefetch the next one; a hook before the module's forward."""
        if inside_backward():  # a recomputation
            self._current_backward()
            self.gathers.unshard(unit)
            return
        if unit is self.root:
            self._begin_forward()
        if not self.order.enter(unit) and self._reshards_after_forward:
            self.gathers.release_prefetched(keep=unit)
        self._running[unit] = self._running.get(unit, 0) + 1
        self.gathers.before_forward(unit, self.order.next_expected())
        if torch.is_grad_enabled():
            self._versions[unit] = unit.versions
            if unit.holds_frozen:
                for value in tensors_of((args, kwargs)):
                    if value.requires_grad:
                        handle = on_gradient(
                            value, lambda _: self._current_backward().count_arrival(unit)
                        )
                        self._watches.append((unit, handle))

    def after_forward(self, unit: Unit, _: nn.Module, __: Any, outputs: Any) -> None:
        """Hook `outputs` for backward; release `unit` unless it must stay; a hook after forward.

        Raises:
            RuntimeError: the unit has trainable parameters, and no output has a gradient.
        """
        if inside_backward():
            return
        self._running[unit] -= 1
        keeps = torch.is_grad_enabled() and self._hook(unit, outputs)
        if keeps:
            self._forward_order.append(unit)
            keeps = unit is self.root or not self._reshards_after_forward
        if not keeps and not self._running[unit]:
            self.gathers.release(unit)
        if unit is self.root:
            self.order.close()
            self.gathers.release_prefetched()
            if torch.is_grad_enabled():
                self.order.end(self._axes)

    def _begin_forward(self) -> None:
        self.order.compare()
        if self._backward is not None:
            self._recover()
        if self._forward_order_is_old:
            self._forward_order, self._forward_order_is_old = [], False
        self._running = {}
        trains = torch.is_grad_enabled()
        keeps = trains and not self._reshards_after_forward
        self.order.begin(self._axes, trains=trains, fetch=self.gathers.prefetch if keeps else None)
        is_held = (g.state is GradientState.HELD for unit in self.units for g in unit.gradients)
        if self.sync and not any(is_held):
            # Units that an earlier forward left unsharded may be older than the shards, as a fused
            # optimizer doesn't change the shards' version counters. They stay unsharded only while
            # gradients are accumulated, when there was no optimizer step.
            self.gathers.release_all()

    def _hook(self, unit: Unit, outputs: Any) -> bool:
        versions = self._versions[unit]
        differentiable = [output for output in tensors_of(outputs) if output.requires_grad]
        for output in differentiable:
            before_backward_of(
                output, lambda _: self._current_backward().begin_unit(unit, versions)
            )
        trains = any(gradient.flat.shard_f.requires_grad for gradient in unit.gradients)
        if not differentiable and trains:
            raise RuntimeError(
                f"unit {unit.name or '(root)'} ran with gradients enabled and returned no tensor "
                "that wants one, so its backward would go unnoticed: return tensors, in tuples, "
                "lists, mappings or dataclasses, or call it under torch.no_grad()"
            )
        return bool(differentiable)

    # ------------------------------------------------------------------ backward

    def _current_backward(self) -> BackwardPass:
        """Return the running backward; begin it if needed, with a callback at its end."""
        if self._backward is None:
            if self._compares_at_once:
                # In gloo, different sizes would end the process. Over NCCL this would wait for the
                # GPU's whole forward, so the end of backward compares.
                self.order.compare()
            Variable._execution_engine.queue_callback(self._end_backward)
            self._backward = BackwardPass(
                units=self.units, outer=self._outer, forward_order=self._forward_order,
                watched=[unit for unit, _ in self._watches],
                gathers=self.gathers, sync=self.sync,
                # As in PyTorch: units that forward keeps are kept by a backward without sync too.
                keeps=not self.sync and not self._reshards_after_forward,
            )  # fmt: skip
        return self._backward

    def _accumulate_leaf(self, unit: Unit, gradient: FlatGradient, number: int, _: Tensor) -> None:
        backward = self._current_backward()
        if gradient.accumulate(number):
            backward.complete(unit, gradient)

    def _end_backward(self) -> None:
        if self._backward is not None:
            self.order.compare()
            self._backward.end()
            self._reset()

    def _reset(self) -> None:
        for _, handle in self._watches:
            handle.remove()
        self._watches = []
        self._forward_order_is_old = True
        self._backward = None

    def _recover(self) -> None:
        """Reset after a backward that raised: release its units and drop its gradients."""
        self.gathers.release_all()
        for unit in self.units:
            for gradient in unit.gradients:
                gradient.drop()
        self._reset()
