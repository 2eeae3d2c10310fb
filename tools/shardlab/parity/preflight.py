"""One process on the whole batch: what can't be compared at all, and what the ranks must equal.

A model that draws random numbers, or remembers the last step, has no one right answer. A backward
that isn't the derivative of its forward is wrong already here; finite differences tell: (L(w + h·v)
− L(w − h·v)) / 2h is g·v, for a random direction v and the gradient g.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import World
from shardlab.grid.grid import Grid
from shardlab.parity.case import Case, refuse
from shardlab.parity.subject import Subject, count_targets

STRIDE = 1e-4  # h, of finite differences
NEARLY = 0.02  # their relative error, where a router takes its scores in fp32


@dataclass
class Reference:
    """What one process computes.

    Attributes:
        start: the weights at first; every rank loads its slices of them.
        losses, norms: of each step.
        gradients: of the first step, by name, in the order of the model; None for a frozen one.
        weights: after all steps.
        counted: the number of targets of each step that count.
    """

    start: dict[str, Tensor]
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    counted: list[int] = field(default_factory=list)


def train_alone(world: World, subject: Subject, case: Case, steps: int, rate: float) -> Reference:
    """Take the steps in one process, after a look at the model.

    Raises:
        ParityError: the model can't be compared; says what to change.
    """
    model, again = (subject.make(Grid(world=world), case) for _ in range(2))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        refuse("nothing-trains")
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float64:
            refuse("narrow", name=name, dtype=str(parameter.dtype).removeprefix("torch."))

    def loss_of(model: Any, *, step: int = 0, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        return _compute_loss(subject, case, model, step)

    reference = Reference(_copy_weights(model))
    _refuse_state(model, again, loss_of, reference.start)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    for step in range(steps):
        optimizer.zero_grad()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss = loss_of(model, step=step)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        _refuse_unused(model, " ".join(str(warning.message) for warning in caught))
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        squares = [g.square().sum() for g in gradients.values() if g is not None]
        reference.losses.append(float(loss.detach()))
        reference.norms.append(float(torch.stack(squares).sum().sqrt()))
        reference.counted.append(count_targets(subject.batch(step)[1]))
        if step == 0:
            reference.gradients = gradients  # the next steps make new tensors
            _refuse_wrong_backward(model, loss_of, gradients)
            first, other = (float(loss_of(model, seed=seed).detach()) for seed in (0, 1))
            if first != other:
                refuse("draws", first=first, other=other)
        optimizer.step()
    reference.weights = _copy_weights(model)
    return reference


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _compute_loss(subject: Subject, case: Case, model: Any, step: int) -> Tensor:
    """Return the loss of a whole batch; under "tokens", the sum divided by what counts."""
    inputs, targets = subject.batch(step)
    output = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    if not isinstance(output, Tensor | tuple):
        refuse("output", kind=type(output).__name__)
    if not hasattr(model, "loss"):
        refuse("no-loss")
    loss: Tensor = model.loss(output, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        refuse("loss")
    if not isfinite(value := float(loss.detach())):
        refuse("infinite", step=step, loss=value)
    return loss / count_targets(targets) if case.reduction == "tokens" else loss


def _refuse_state(
    model: nn.Module, again: nn.Module, loss_of: Callable[..., Tensor], start: Mapping[str, Tensor]
) -> None:
    """Refuse a model whose loss, under one seed, depends on more than its weights and its batch."""
    with torch.no_grad():
        for name, parameter in again.named_parameters():
            parameter.copy_(start[name])
    buffers = {name: buffer.clone() for name, buffer in again.named_buffers()}
    first, second, other = (float(loss_of(m).detach()) for m in (again, again, model))
    for name, buffer in again.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            refuse("buffer", name=name)
    if first != second:
        refuse("state", first=first, second=second)
    if first != other:
        refuse("builds", first=first, other=other)


def _refuse_unused(model: nn.Module, warned: str) -> None:
    unused = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if unused and "None of the inputs have requires_grad" in warned:
        refuse("reentrant", name=unused[0])
    if unused:
        others = f" and {len(unused) - 1} others" if len(unused) > 1 else ""
        refuse("unused", name=unused[0], others=others)


def _refuse_wrong_backward(
    model: nn.Module, loss_of: Callable[..., Tensor], gradients: Mapping[str, Tensor | None]
) -> None:
    """Refuse a backward that isn't the derivative of its forward, under one seed."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in reversed([*model.named_parameters()]):  # backward's order
        if (gradient := gradients[name]) is None:
            continue
        direction = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        values = []
        with torch.no_grad():
            for sign in (1, -2):
                parameter.add_(direction, alpha=sign * STRIDE)
                values.append(float(loss_of(model)))
            parameter.add_(direction, alpha=STRIDE)
        numeric = (values[0] - values[1]) / (2 * STRIDE)
        exact = float((gradient * direction).sum())
        scale = float(gradient.norm() * direction.norm()) + abs(numeric) + 1e-4
        if abs(numeric - exact) > NEARLY * scale:
            refuse("derivative", name=name, exact=exact, numeric=numeric)
