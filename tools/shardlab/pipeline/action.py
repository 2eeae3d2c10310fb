"""What a pipeline stage can do: compute one micro-batch, send, receive; and who feeds whom.

With p stages, chunk c of stage s is piece c·p + s: the pieces go round the stages, chunk by chunk.
A forward feeds the next piece's forward, a backward the piece before's backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _OfMicrobatch:
    microbatch: int
    chunk: int = 0


class Forward(_OfMicrobatch):
    """Run one micro-batch forward through one chunk."""


class Backward(_OfMicrobatch):
    """Run one micro-batch backward through one chunk: input and weight gradients both.

    Where the stage also has a `Weight` of the micro-batch, the linears' weights are left to that.
    """


class Weight(_OfMicrobatch):
    """Compute the weights' gradients that `Backward(microbatch, chunk)` left; no stage waits."""


Compute = Forward | Backward | Weight


@dataclass(frozen=True, slots=True)
class Send:
    """Send a compute's result to the stage that needs it: an output on, an input gradient back."""

    compute: Compute


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive what a compute starts from, of the stage that sends it: an input, or a gradient."""

    compute: Compute


Message = Send | Receive


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sends and receives that are started together, so that they may cross.

    One after the other they could block for ever: a send may only end when the receive is posted.
    """

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()


Action = Compute | Message | Exchange

# One list of actions for each stage.
Schedule = list[list[Action]]


@dataclass(frozen=True, slots=True)
class Span:
    """One compute of one stage, from `start` to `end`."""

    action: Compute
    start: float
    end: float


class ScheduleError(ValueError):
    """A schedule that cannot be built or run; says which stage and which action."""


def parts(action: Action) -> tuple[Compute | Message, ...]:
    """Return an action's parts, sends before receives; a compute or single message is its own."""
    return (*action.sends, *action.receives) if isinstance(action, Exchange) else (action,)


def computes(actions: Sequence[Action]) -> list[Compute]:
    """Return what a stage computes, in order, without the messages."""
    return [a for a in actions if isinstance(a, Forward | Backward | Weight)]


def chunks_in(schedule: Sequence[Sequence[Action]]) -> int:
    """Return how many chunks each stage of a schedule holds."""
    return 1 + max((part.chunk for part in _every(schedule)), default=0)


def microbatches_in(schedule: Sequence[Sequence[Action]]) -> int:
    """Return how many micro-batches a schedule runs."""
    return 1 + max((part.microbatch for part in _every(schedule)), default=-1)


def _every(schedule: Sequence[Sequence[Action]]) -> Iterator[Compute]:
    every = (part for actions in schedule for action in actions for part in parts(action))
    return (part.compute if isinstance(part, Message) else part for part in every)


def name(action: Action) -> str:
    """Return a short name: F3, B3, W3; SF3, RB3 for messages; a chunk above 0 a letter: F3b."""
    if isinstance(action, Exchange):
        return "[" + " ".join(name(part) for part in parts(action)) + "]"
    kind = type(action).__name__[0]
    if isinstance(action, Message):
        return kind + name(action.compute)
    letter = chr(ord("a") + action.chunk) if action.chunk else ""
    return f"{kind}{action.microbatch}{letter}"


def follows(compute: Compute) -> Compute | None:
    """Return the compute of the same micro-batch, chunk and stage that this one builds on."""
    if isinstance(compute, Forward):
        return None
    kind = Backward if isinstance(compute, Weight) else Forward
    return kind(compute.microbatch, compute.chunk)


def feeds(stage: int, compute: Compute, stages: int, chunks: int) -> tuple[int, Compute] | None:
    """Return the stage and compute that need this one's result.

    None at the model's two ends; that the last piece's forward feeds its own backward stays on one
    stage and is not told here.
    """
    return _beside(stage, compute, 1, stages, chunks)


def needs(stage: int, compute: Compute, stages: int, chunks: int) -> tuple[int, Compute] | None:
    """Return the stage and compute whose result this one needs, of another piece."""
    return _beside(stage, compute, -1, stages, chunks)


def _beside(
    stage: int, compute: Compute, on: int, stages: int, chunks: int
) -> tuple[int, Compute] | None:
    piece = compute.chunk * stages + stage + (on if isinstance(compute, Forward) else -on)
    if isinstance(compute, Weight) or not 0 <= piece < stages * chunks:
        return None
    return piece % stages, type(compute)(compute.microbatch, piece // stages)


def partner(stage: int, message: Message, stages: int, chunks: int) -> tuple[int, Message] | None:
    """Return the other end of a message: its stage, and the receive (send) to be posted there.

    None where there is no other end: at the model's two ends, or on the stage itself.
    """
    across, end = (feeds, Receive) if isinstance(message, Send) else (needs, Send)
    there = across(stage, message.compute, stages, chunks)
    return (there[0], end(there[1])) if there and there[0] != stage else None
