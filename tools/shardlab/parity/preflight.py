"""One process on the whole batch: what can't be compared at all, and what the ranks must equal.

A model that draws random numbers, or remembers the last step, has no one right answer. A backward
that isn't the derivative of its forward is wrong already here; finite differences tell: (L(w + h·v)
− L(w − h·v)) / 2h is g·v, for a random direction v and the gradient g.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardlab.comm import World
from shardlab.grid.grid import Grid
from shardlab.parity.case import Case
from shardlab.parity.subject import ParityError, Subject, count_targets

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
        tied: the names under which stages may hold copies of a parameter.
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
    model = subject.make(Grid(world=world), case, 0, 1)
    _check_model(model)
    reference = Reference({n: p.detach().clone() for n, p in model.named_parameters()})
    loss = _loss_of(subject, case, model, 0)
    _check_repeats(world, subject, case, reference.start, float(loss.detach()))
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss = _loss_of(subject, case, model, step)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        _check_used(model, " ".join(str(warning.message) for warning in caught))
        gradients = {n: p.grad for n, p in model.named_parameters()}
        squares = [g.square().sum() for g in gradients.values() if g is not None]
        reference.losses.append(float(loss.detach()))
        reference.norms.append(float(torch.stack(squares).sum().sqrt()))
        reference.counted.append(count_targets(subject.batch(step)[1]))
        if step == 0:
            reference.gradients = {
                n: None if g is None else g.clone() for n, g in gradients.items()
            }
            _check_derivative(subject, case, model, reference.gradients)
        optimizer.step()
    reference.weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    return reference


def _loss_of(subject: Subject, case: Case, model: Any, step: int) -> Tensor:
    """Return the loss of a whole batch; under "tokens", the sum divided by what counts."""
    inputs, targets = subject.batch(step)
    output = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    if not isinstance(output, Tensor | tuple):
        raise ParityError(
            f"the model returns a {type(output).__name__}: return a tensor or a tuple of tensors, "
            "which a next stage gets as its arguments, and compute the loss in model.loss"
        )
    if not hasattr(model, "loss"):
        raise ParityError("the model has no loss: write model.loss(output, targets)")
    loss: Tensor = model.loss(output, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ParityError("model.loss(output, targets) must return one number, as a tensor")
    return loss / count_targets(targets) if case.reduction == "tokens" else loss


def _check_model(model: nn.Module) -> None:
    if narrow := [(n, p.dtype) for n, p in model.named_parameters() if p.dtype != torch.float64]:
        name, dtype = narrow[0]
        raise ParityError(
            f"{name} is {str(dtype).removeprefix('torch.')}: build the model in float64, because "
            "the rounding of a narrower dtype hides faults"
        )


def _check_repeats(
    world: World, subject: Subject, case: Case, start: Mapping[str, Tensor], first: float
) -> None:
    """Refuse a model whose loss depends on more than its weights and its batch."""
    losses = []
    model = subject.make(Grid(world=world), case, 0, 1)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(start[name])
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        losses.append(float(_loss_of(subject, case, model, 0).detach()))
    changed = [n for n, b in model.named_buffers() if not torch.equal(b, buffers[n])]
    if changed:
        raise ParityError(
            f"a forward changes the buffer {changed[0]}: a model that keeps state between steps "
            "has no one right answer; turn it off for the proof, or make it a function of the batch"
        )
    if losses[0] != losses[1]:
        raise ParityError(
            f"the model keeps state between forwards: the loss of one batch is {losses[0]:.6g}, "
            f"and {losses[1]:.6g} when it is run again; reset that state, or take it out"
        )
    if losses[1] != losses[2]:
        _check_derivative_of_seed(world, subject, case)
        raise ParityError(
            f"the model draws random numbers: with other seeds, the loss of one batch is "
            f"{losses[1]:.6g} and {losses[2]:.6g}; build it without dropout for the proof"
        )
    if losses[0] != first:
        raise ParityError(
            f"two models that build() returned differ with the same weights: their losses are "
            f"{first:.6g} and {losses[0]:.6g}; build must not depend on what was built before"
        )


def _check_derivative_of_seed(world: World, subject: Subject, case: Case) -> None:
    """Under one seed a dropout's mask is fixed; refuse a backward that draws another one."""
    model = subject.make(Grid(world=world), case, 0, 1)
    torch.manual_seed(0)
    _loss_of(subject, case, model, 0).backward()  # type: ignore[no-untyped-call]
    _check_derivative(subject, case, model, {n: p.grad for n, p in model.named_parameters()})


def _check_used(model: nn.Module, warned: str) -> None:
    unused = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if not unused:
        return
    if "None of the inputs have requires_grad" in warned:
        raise ParityError(
            f"no gradient reaches {unused[0]}: it is recomputed by checkpoint(use_reentrant=True) "
            "below frozen parameters, so that no input needs a gradient; give use_reentrant=False"
        )
    others = f" and {len(unused) - 1} others" if len(unused) > 1 else ""
    raise ParityError(
        f"the loss does not depend on {unused[0]}{others}: freeze it (requires_grad_(False)) or "
        "take it out, because replicas would wait for its gradient"
    )


def _check_derivative(
    subject: Subject, case: Case, model: Any, gradients: Mapping[str, Tensor | None]
) -> None:
    """Refuse a backward that isn't the derivative of its forward."""
    generator = torch.Generator().manual_seed(1)
    trained = [(n, p) for n, p in model.named_parameters() if gradients[n] is not None]
    off = []
    for name, parameter in reversed(trained):  # backward's order
        gradient = gradients[name]
        assert gradient is not None
        direction = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        values = []
        with torch.no_grad():
            for sign in (1, -2):
                parameter.add_(direction, alpha=sign * STRIDE)
                torch.manual_seed(0)
                values.append(float(_loss_of(subject, case, model, 0).detach()))
            parameter.add_(direction, alpha=STRIDE)
        numeric = (values[0] - values[1]) / (2 * STRIDE)
        exact = float((gradient * direction).sum())
        scale = float(gradient.norm() * direction.norm()) + abs(numeric) + 1e-4
        if abs(numeric - exact) > NEARLY * scale:
            off.append((name, numeric, exact))
    if off:
        name, numeric, exact = off[0]
        raise ParityError(
            f"in one process, the backward of {name} isn't the derivative of the forward (along a "
            f"random direction {exact:.6g}, by finite differences {numeric:.6g}): is it recomputed "
            "with another dropout mask (checkpoint with preserve_rng_state=False, or a seed that "
            "moves), or is an autograd function wrong?"
        )
