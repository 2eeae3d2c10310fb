"""Run a schedule: this stage's chunks over the micro-batches, messages over the pipeline axis.

The loop below knows no schedule. It takes its stage's actions one by one: a forward, a backward,
what that left of the weights' gradients, an exchange to start. What a compute needs is waited for
just before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

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
from shardlab.pipeline.neighbours import Neighbours

Loss = Callable[[Tensor, Tensor], Tensor]
Microbatch = tuple[Tensor | None, Tensor | None]


def run(
    schedule: Schedule, chunks: nn.Module | Sequence[nn.Module],
    microbatches: Sequence[Microbatch], loss: Loss, *, axis: Axis, shape: Sequence[int],
    dtype: torch.dtype | None = None, device: torch.device | None = None,
    scale: float | None = None, record: list[Span] | None = None,
) -> list[Tensor]:  # fmt: skip
    """Run one step of a pipeline; gradients add up in the parameters' `.grad`.

    Every stage calls it with the same schedule. A schedule with no backward (`forward_only`) is an
    evaluation: it builds no graph. A schedule of one's own should pass `check` of
    proofs/schedules/deadlock.py first.

    A micro-batch's graph lives from its forward to its backward. Its output is dropped once sent:
    backward needs the output's place in the graph (`GradientEdge`), not its values. Megatron gets
    there by shrinking the output's `.data` and calling autograd's C++ engine past its shape check
    (`deallocate_output_tensor` and `custom_backward` in core/pipeline_parallel/schedules.py).

    Args:
        schedule: one list of actions a stage; this stage's is `schedule[axis.rank]`.
        chunks: this stage's pieces of the model, in order; one module where there is one chunk.
        microbatches: (input, target) of each; only the first stage looks at inputs, only the last
            at targets, so the others' may be None.
        loss: (output of the last piece, target) to a mean over the micro-batch, one number.
        axis: the pipeline axis.
        shape: what goes from piece to piece, of one micro-batch on this rank: [S, B, H], or
            [S / tensor, B, H] under sequence parallelism (`GPT.hidden_shape`).
        dtype: of the same; that of this stage's first parameter unless given.
        device: of the same, likewise.
        scale: what each micro-batch's loss is multiplied by before its backward; 1/m unless given,
            so that equal micro-batches give the gradient of the mean over the batch, with any
            number of stages, one too. Give 1 for losses that are sums.
        record: gets a span in seconds for each of this stage's computes, without the wait before
            it; all stages' together make a timeline (proofs/schedules/timeline.py). Of no use on a
            GPU, where the clock sees launches only.

    Returns:
        each micro-batch's loss as `loss` gave it, without graph, on the last stage; elsewhere none.

    Raises:
        ScheduleError: the schedule is for other stages, chunks or micro-batches than those given,
            or it ends with weights' gradients that no `Weight` computed.
        ValueError: a stage's output has another shape or dtype than was said, or the loss is not
            one number; under a schedule with `Weight`, what `split` refuses.
        CollectiveError: a message did not come; names the rank that is missing.
    """
    modules = [chunks] if isinstance(chunks, nn.Module) else list(chunks)
    _demand_fit(schedule, len(modules), len(microbatches), axis)
    like = next((p for module in modules for p in module.parameters()), torch.empty(0))
    actions = schedule[axis.rank]
    form = tuple(shape), dtype or like.dtype, device or like.device
    messages = Neighbours(axis, actions, len(modules), *form)
    trains = any(isinstance(action, Backward) for action in actions)
    splits = any(isinstance(action, Weight) for action in actions)
    scale = 1 / len(microbatches) if scale is None else scale
    stage = _Stage(modules, microbatches, loss, scale, trains, messages, record)
    with (
        torch.set_grad_enabled(trains),
        defer_weight_grads(modules) if splits else nullcontext() as left,
    ):
        for action in actions:
            if isinstance(action, Forward):
                stage.forward(action)
            elif isinstance(action, Backward):
                stage.backward(action)
                if left:
                    stage.left[action.microbatch, action.chunk] = dict(left)
                    left.clear()
            elif isinstance(action, Weight):
                stage.weight(action)
            else:
                messages.start(parts(action))  # type: ignore[arg-type]
    messages.finish()
    if stage.left:
        missing = ", ".join(name(Weight(*which)) for which in stage.left)
        raise ScheduleError(f"stage {axis.rank} ends without {missing}: gradients lack a part")
    return [stage.losses[m] for m in sorted(stage.losses)]


@dataclass(slots=True)
class _Stage:
    """One stage in the middle of a run: what it computes, and what is alive of it.

    Attributes:
        losses: of each micro-batch, on the last stage.
        live: what backward needs of a micro-batch in a chunk: the input that came from another
            piece, whose gradient goes back there; and where in the graph the output stands, or None
            if it wants no gradient.
        left: what its backward has left of the weights' gradients.
    """

    modules: list[nn.Module]
    microbatches: Sequence[Microbatch]
    loss: Loss
    scale: float
    trains: bool
    messages: Neighbours
    record: list[Span] | None
    losses: dict[int, Tensor] = field(default_factory=dict)
    live: dict[tuple[int, int], tuple[Tensor | None, GradientEdge | None]] = field(
        default_factory=dict
    )
    left: dict[tuple[int, int], DeferredGrads] = field(default_factory=dict)

    def forward(self, action: Forward) -> None:
        """Compute one micro-batch through one chunk; hand on the output, or take its loss."""
        m, c = action.microbatch, action.chunk
        given, target = self.microbatches[m]
        x = None
        if not self.messages.is_first(c):
            x = self.messages.take(Receive(action)).requires_grad_(self.trains)
        begin = time.perf_counter()
        with tracing.phase("forward"):
            y = self.modules[c](given if x is None else x)
            if self.messages.is_last(c):
                y = self.loss(y, target)  # type: ignore[arg-type]
        if self.messages.is_last(c):
            if y.numel() != 1:
                raise ValueError(
                    f"the loss of a micro-batch must be one number, found shape {tuple(y.shape)}: "
                    "reduce it, to a mean or (with scale=1) to a sum"
                )
            self.losses[m] = y.detach()
        else:
            self.messages.give(Send(action), y.detach())
        if self.trains:
            self.live[m, c] = x, get_gradient_edge(y) if y.requires_grad else None
        self._note(action, begin)

    def backward(self, action: Backward) -> None:
        """Compute one micro-batch's gradients in one chunk; hand on the input's."""
        m, c = action.microbatch, action.chunk
        x, edge = self.live.pop((m, c))
        if self.messages.is_last(c):
            gradient = torch.full_like(self.losses[m], self.scale)
        else:
            gradient = self.messages.take(Receive(action))
        begin = time.perf_counter()
        if edge is not None:
            torch.autograd.backward(edge, gradient)
        if x is not None:
            # A stage whose output doesn't depend on its input owes the one before a gradient of 0.
            owed = torch.zeros_like(x) if x.grad is None else x.grad
            self.messages.give(Send(action), owed)
        self._note(action, begin)

    def weight(self, action: Weight) -> None:
        """Compute the weights' gradients that one micro-batch's backward left."""
        left = self.left.pop((action.microbatch, action.chunk), {})
        begin = time.perf_counter()
        compute_weight_grads(left)
        self._note(action, begin)

    def _note(self, action: Compute, begin: float) -> None:
        if self.record is not None:
            self.record.append(Span(action, begin, time.perf_counter()))


def _demand_fit(schedule: Schedule, chunks: int, microbatches: int, axis: Axis) -> None:
    """Refuse a schedule made for something else."""
    mine = schedule[axis.rank : axis.rank + 1]
    for what, made, found in (
        ("stages", len(schedule), axis.size),
        ("chunks a stage", chunks_in(mine), chunks),
        ("micro-batches", microbatches_in(mine), microbatches),
    ):
        if made != found:
            raise ScheduleError(f"the schedule is for {made} {what}, found {found}: build it anew")
