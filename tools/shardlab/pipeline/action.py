"""What a pipeline stage can do: compute one micro-batch, send, receive."""

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
    """Run one micro-batch backward through one chunk: input and weight gradients both."""


class SendForward(_OfMicrobatch):
    """Send the output of `Forward(microbatch, chunk)` to the stage that holds the next piece."""


class SendBackward(_OfMicrobatch):
    """Send the input gradient of `Backward(microbatch, chunk)` to the stage of the piece before."""


class RecvForward(_OfMicrobatch):
    """Receive the input of `Forward(microbatch, chunk)` from the stage of the piece before."""


class RecvBackward(_OfMicrobatch):
    """Receive the output gradient that `Backward(microbatch, chunk)` starts from."""


Compute = Forward | Backward
Send = SendForward | SendBackward
Receive = RecvForward | RecvBackward
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
    """Return a stage's forwards and backwards, in order, without the messages."""
    return [a for a in actions if isinstance(a, Forward | Backward)]


def chunks_in(schedule: Sequence[Sequence[Action]]) -> int:
    """Return how many chunks each stage of a schedule holds."""
    return 1 + max((part.chunk for part in _every(schedule)), default=0)


def microbatches_in(schedule: Sequence[Sequence[Action]]) -> int:
    """Return how many micro-batches a schedule runs."""
    return 1 + max((part.microbatch for part in _every(schedule)), default=-1)


def _every(schedule: Sequence[Sequence[Action]]) -> Iterator[Compute | Message]:
    return (part for actions in schedule for action in actions for part in parts(action))


def name(action: Action) -> str:
    """Return a short name: F3, B3; SF3 and RB3 for messages; a letter for a chunk above 0: F3b."""
    if isinstance(action, Exchange):
        return "[" + " ".join(name(part) for part in parts(action)) + "]"
    kind = "".join(c for c in type(action).__name__ if c.isupper())
    letter = chr(ord("a") + action.chunk) if action.chunk else ""
    return f"{kind}{action.microbatch}{letter}"
