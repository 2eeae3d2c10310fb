"""1F1B in three loops, with blocking sends and receives: the first file to read about pipelines.

Each stage holds one piece of the model. Stage s of p stages runs min(p − s − 1, m) of the m
micro-batches forward (warm-up), then forward and backward in turn (steady state), then the
remaining backwards (cool-down). So at most p − s micro-batches are alive on a stage.

`run` in pipeline/run.py has the same results. It runs other schedules, too, waits for a message
only before the compute that needs it, and frees outputs early.
"""

from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from shardlab.comm import Axis


def run_plain_1f1b(
    stage: nn.Module, microbatches: Sequence[tuple[Tensor | None, Tensor | None]],
    loss: Callable[[Tensor, Tensor], Tensor], *, axis: Axis, shape: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    """Run one step; gradients of the batch's mean loss accumulate in the parameters' `.grad`.

    A send blocks until the other stage receives. If two neighbours both sent first, they would wait
    for each other forever. So towards the next stage a stage sends first, and towards the previous
    stage it receives first.

    Args:
        stage: this rank's piece of the model.
        microbatches: (input, target) of each; only the first stage reads inputs and only the last
            stage reads targets.
        loss: a function of (output of the last stage, target) that returns the micro-batch's mean.
        axis: the pipeline axis.
        shape: the shape of one micro-batch's activation between two stages.

    Returns:
        each micro-batch's loss on the last stage; an empty list elsewhere.
    """
    s, p, m = axis.rank, axis.size, len(microbatches)
    weight = next(stage.parameters())
    alive: deque[tuple[Tensor | None, Tensor]] = deque()  # (input, output) before their backward
    losses: list[Tensor] = []

    def receive(source: int) -> Tensor | None:
        if not 0 <= source < p:
            return None  # there is no stage before the first and none after the last
        out = torch.empty(tuple(shape), dtype=weight.dtype, device=weight.device)
        return axis.recv(out, source)

    def send(x: Tensor | None, to: int) -> None:
        if x is not None and 0 <= to < p:
            axis.send(x.detach(), to)

    def forward(i: int, x: Tensor | None) -> Tensor:
        model_input, target = microbatches[i]
        y: Tensor = stage(model_input if x is None else x.requires_grad_())
        if s == p - 1:
            y = loss(y, target)  # type: ignore[arg-type]
            losses.append(y.detach())
            y = y / m
        alive.append((x, y))
        return y

    def backward(gradient: Tensor | None) -> Tensor | None:
        x, y = alive.popleft()
        torch.autograd.backward(y, gradient)  # None on the last stage, where y is one number
        return None if x is None else x.grad

    # Warm-up: fill the stages that follow.
    warm_up = min(p - s - 1, m)
    for i in range(warm_up):
        send(forward(i, receive(s - 1)), s + 1)

    # Steady state: one micro-batch forward, then the oldest one backward.
    x = receive(s - 1) if warm_up < m else None
    for i in range(warm_up, m):
        send(forward(i, x), s + 1)
        input_gradient = backward(receive(s + 1))
        x = receive(s - 1) if i < m - 1 else None
        send(input_gradient, s - 1)

    # Cool-down: the micro-batches that are still alive.
    for _ in range(warm_up):
        send(backward(receive(s + 1)), s - 1)
    return losses
