"""Run a schedule: this stage's chunks over the micro-batches, with messages over the pipeline axis.

The loop below works for every schedule. It runs its stage's actions one by one: forward, backward,
deferred weights' gradients, start of an exchange. It waits for a compute's inputs just before that
compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from shardlab.comm import Axis, tracing
from shardlab.layers.deferred_weight_grad import (
    DeferredGrads,
    compute_weight_grads,
    defer_weight_grads,
)
from shardlab.pipeline.action import (
    Backward,
    Compute,
    Forward,
    Receive,
    Schedule,
    ScheduleError,
    Send,
    Span,
    Weight,
    chunks_in,
    microbatches_in,
    name,
    parts,
)
from shardlab.pipeline.neighbours import Form, Neighbours

Tensors = Tensor | tuple[Tensor, ...]
Loss = Callable[[Any, Any], Tensor]
Microbatch = tuple[Tensors | None, Tensors | None]
Shape = Sequence[int]


def run(
    schedule: Schedule, chunks: nn.Module | Sequence[nn.Module],
    microbatches: Sequence[Microbatch], loss: Loss, *, axis: Axis,
    shape: Shape | Sequence[Shape], dtype: torch.dtype | Sequence[torch.dtype] | None = None,
    device: torch.device | None = None, scale: float | None = None,
    record: list[Span] | None = None,
) -> list[Tensor]:  # fmt: skip
    """Run one step of a pipeline; gradients accumulate in the parameters' `.grad`.

    Every stage must call it with the same schedule. A schedule without backward (`forward_only`) is
    an evaluation and builds no graph. Check a schedule that you wrote yourself by `check` of
    proofs/schedules/deadlock.py first.

    A micro-batch's graph lives from its forward to its backward. Its output is freed once it is
    sent, because backward needs only the output's position in the graph (`GradientEdge`), not its
    values. Megatron achieves the same by shrinking the output's `.data` and calling autograd's C++
    engine without its shape check (`deallocate_output_tensor` and `custom_backward` in
    core/pipeline_parallel/schedules.py).

    Args:
        schedule: one list of actions a stage; this stage's is `schedule[axis.rank]`.
        chunks: this stage's pieces of the model, in order; one module where there is one chunk.
        microbatches: (input, target) of each; only the first stage reads inputs and only the last
            stage reads targets, so they may be None on the other stages. If an input is a tuple,
            its parts are the module's arguments.
        loss: a function of (output of the last piece, target) that returns the mean over the
            micro-batch, one number.
        axis: the pipeline axis.
        shape: the shape of one micro-batch's activation between two pieces, on this rank:
            [S, B, H], or [S / tensor, B, H] under sequence parallelism (`GPT.hidden_shape`). If a
            piece returns a tuple, such as (hidden states, documents), a sequence of shapes; the
            next piece gets the parts as its arguments.
        dtype: the dtype of that activation, or of each part; by default that of this stage's first
            parameter. Integers and flags have no gradient, and nothing is sent back for them.
        device: the device of that activation; by default that of this stage's first parameter.
        scale: the factor of each micro-batch's loss before its backward. The default 1/m gives the
            gradient of the mean over the batch if micro-batches are equal, for any number of
            stages. Give 1 for losses that are sums.
        record: a list to which a span in seconds is added for each of this stage's computes,
            without the wait before it. All stages' spans make a timeline
            (proofs/schedules/timeline.py). On a GPU the spans measure launches only.

    Returns:
        each micro-batch's loss, without its graph, on the last stage; an empty list elsewhere.

    Raises:
        ScheduleError: the schedule is for other stages, chunks or micro-batches than those given,
            or it lacks a `Weight` for deferred gradients.
        ValueError: a stage returns no tensors, or tensors of another shape or dtype than `shape`
            and `dtype`, or the loss is not one number; under a schedule with `Weight`, see
            `defer_weight_grads`.
        CollectiveError: a message did not arrive; names the missing rank.
    """
    modules = [chunks] if isinstance(chunks, nn.Module) else list(chunks)
    _check_fits(schedule, len(modules), len(microbatches), axis)
    parameter = next((p for module in modules for p in module.parameters()), torch.empty(0))
    actions = schedule[axis.rank]
    forms = _list_forms(shape, dtype or parameter.dtype)
    messages = Neighbours(axis, actions, len(modules), forms, device or parameter.device)
    trains = any(isinstance(action, Backward) for action in actions)
    splits = any(isinstance(action, Weight) for action in actions)
    scale = 1 / len(microbatches) if scale is None else scale
    stage = _Stage(modules, microbatches, loss, scale, trains, messages, record)
    with (
        torch.set_grad_enabled(trains),
        defer_weight_grads(modules) if splits else nullcontext() as deferred,
    ):
        for action in actions:
            if isinstance(action, Forward):
                stage.forward(action)
            elif isinstance(action, Backward):
                stage.backward(action)
                if deferred:
                    stage.deferred[action.microbatch, action.chunk] = dict(deferred)
                    deferred.clear()
            elif isinstance(action, Weight):
                stage.weight(action)
            else:
                messages.start(parts(action))  # type: ignore[arg-type]
    messages.finish()
    if stage.deferred:
        missing = ", ".join(name(Weight(*which)) for which in stage.deferred)
        raise ScheduleError(f"stage {axis.rank} ends without {missing}: gradients lack a part")
    return [stage.losses[m] for m in sorted(stage.losses)]


@dataclass(slots=True)
class _Stage:
    """The state of one stage during a run.

    Attributes:
        losses: the loss of each micro-batch, on the last stage.
        live: for each (micro-batch, chunk) that waits for its backward: the received inputs, whose
            gradients are sent back, and each output's position in the graph; None if it needs no
            gradient.
        deferred: for each (micro-batch, chunk): the weights' gradients that its backward deferred.
    """

    modules: list[nn.Module]
    microbatches: Sequence[Microbatch]
    loss: Loss
    scale: float
    trains: bool
    messages: Neighbours
    record: list[Span] | None
    losses: dict[int, Tensor] = field(default_factory=dict)
    live: dict[tuple[int, int], tuple[list[Tensor], list[GradientEdge | None]]] = field(
        default_factory=dict
    )
    deferred: dict[tuple[int, int], DeferredGrads] = field(default_factory=dict)

    def forward(self, action: Forward) -> None:
        """Run one micro-batch through one chunk; queue the output, or compute the loss."""
        m, c = action.microbatch, action.chunk
        model_input, target = self.microbatches[m]
        received: list[Tensor] = []
        inputs = _as_tuple(model_input)
        if not self.messages.is_first(c):
            inputs = self.messages.receive(Receive(action))
            received = [x.requires_grad_(self.trains) for x in inputs if x.is_floating_point()]
        begin = time.perf_counter()
        with tracing.phase("forward"):
            y = self.modules[c](*inputs)
            if self.messages.is_last(c):
                y = self.loss(y, target)
        outputs = _as_tuple(y)
        if self.messages.is_last(c):
            if y.numel() != 1:
                raise ValueError(
                    f"the loss of a micro-batch must be one number, found shape {tuple(y.shape)}: "
                    "reduce it, to a mean or (with scale=1) to a sum"
                )
            self.losses[m] = y.detach()
        else:
            sent = (x.detach() if isinstance(x, Tensor) else x for x in outputs)
            self.messages.queue_send(Send(action), tuple(sent))
        if self.trains:
            edges = [
                get_gradient_edge(x) if x.requires_grad else None
                for x in outputs
                if x.is_floating_point()
            ]
            self.live[m, c] = received, edges
        self._note(action, begin)

    def backward(self, action: Backward) -> None:
        """Compute one micro-batch's gradients in one chunk; queue the input's gradient."""
        m, c = action.microbatch, action.chunk
        received, edges = self.live.pop((m, c))
        if self.messages.is_last(c):
            gradients: tuple[Tensor, ...] = (torch.full_like(self.losses[m], self.scale),)
        else:
            gradients = self.messages.receive(Receive(action))
        begin = time.perf_counter()
        pairs = [(e, g) for e, g in zip(edges, gradients, strict=True) if e is not None]
        if pairs:
            torch.autograd.backward([e for e, _ in pairs], [g for _, g in pairs])
        if received:
            # If the output doesn't depend on the input, the previous stage gets a gradient of 0.
            of_inputs = (torch.zeros_like(x) if x.grad is None else x.grad for x in received)
            self.messages.queue_send(Send(action), tuple(of_inputs))
        self._note(action, begin)

    def weight(self, action: Weight) -> None:
        """Compute the weights' gradients that one micro-batch's backward deferred."""
        deferred = self.deferred.pop((action.microbatch, action.chunk), {})
        begin = time.perf_counter()
        compute_weight_grads(deferred)
        self._note(action, begin)

    def _note(self, action: Compute, begin: float) -> None:
        if self.record is not None:
            self.record.append(Span(action, begin, time.perf_counter()))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _list_forms(
    shape: Shape | Sequence[Shape], dtype: torch.dtype | Sequence[torch.dtype]
) -> tuple[Form, ...]:
    """Return (shape, dtype) of each tensor between two pieces."""
    shapes: list[Any] = [shape]
    if any(isinstance(part, Sequence) for part in shape):
        shapes = [*shape]
    dtypes = [dtype] * len(shapes) if isinstance(dtype, torch.dtype) else dtype
    return tuple((tuple(part), kind) for part, kind in zip(shapes, dtypes, strict=True))


def _check_fits(schedule: Schedule, chunks: int, microbatches: int, axis: Axis) -> None:
    """Refuse a schedule for other numbers of stages, chunks or micro-batches."""
    stage_schedule = schedule[axis.rank : axis.rank + 1]
    for what, expected, actual in (
        ("stages", len(schedule), axis.size),
        ("chunks a stage", chunks_in(stage_schedule), chunks),
        ("micro-batches", microbatches_in(stage_schedule), microbatches),
    ):
        if expected != actual:
            raise ScheduleError(
                f"the schedule is for {expected} {what}, found {actual}: build it again"
            )
