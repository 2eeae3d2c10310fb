"""The actions of a pipeline stage: compute a micro-batch, send, receive; and their dependencies.

With p stages, chunk c of stage s is piece c·p + s of the model. A forward's result goes to the next
piece's forward, and a backward's result to the previous piece's backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _MicrobatchAction:
    microbatch: int
    chunk: int = 0


class Forward(_MicrobatchAction):
    """Run one micro-batch forward through one chunk."""


class Backward(_MicrobatchAction):
    """Run one micro-batch backward through one chunk: the input's and the weights' gradients.

    If the schedule also has a `Weight` of the micro-batch, that computes the linears' weights'
    gradients instead.
    """


class Weight(_MicrobatchAction):
    """Compute the weights' gradients that `Backward(microbatch, chunk)` deferred.

    No other stage waits for it.
    """


Compute = Forward | Backward | Weight


@dataclass(frozen=True, slots=True)
class Send:
    """Send a compute's result to the stage that needs it: an output, or an input's gradient."""

    compute: Compute


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive what a compute needs from another stage: an input, or an output's gradient."""

    compute: Compute


Message = Send | Receive


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sends and receives that are started at the same time, so that they may cross.

    Started one after the other they could deadlock, as a send may block until its receive is
    posted.
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
    """Raised when a schedule can't be built or run; names the stage and the action."""


def parts(action: Action) -> tuple[Compute | Message, ...]:
    """Return an exchange's messages, sends first; any other action is its own single part."""
    return (*action.sends, *action.receives) if isinstance(action, Exchange) else (action,)


def computes(actions: Sequence[Action]) -> list[Compute]:
    """Return the computes among a stage's actions, in order."""
    return [a for a in actions if isinstance(a, Forward | Backward | Weight)]


def chunks_in(schedule: Sequence[Sequence[Action]]) -> int:
    """Return how many chunks each stage of a schedule holds."""
    return 1 + max((part.chunk for part in _list_computes(schedule)), default=0)


def microbatches_in(schedule: Sequence[Sequence[Action]]) -> int:
    """Return how many micro-batches a schedule runs."""
    return 1 + max((part.microbatch for part in _list_computes(schedule)), default=-1)


def _list_computes(schedule: Sequence[Sequence[Action]]) -> Iterator[Compute]:
    every = (part for actions in schedule for action in actions for part in parts(action))
    return (part.compute if isinstance(part, Message) else part for part in every)


def name(action: Action) -> str:
    """Return a short name: F3, B3, W3; SF3, RB3 for messages; F3b for chunk 1."""
    if isinstance(action, Exchange):
        return "[" + " ".join(name(part) for part in parts(action)) + "]"
    kind = type(action).__name__[0]
    if isinstance(action, Message):
        return kind + name(action.compute)
    letter = chr(ord("a") + action.chunk) if action.chunk else ""
    return f"{kind}{action.microbatch}{letter}"


def follows(compute: Compute) -> Compute | None:
    """Return the compute of the same micro-batch, chunk and stage that must precede this one."""
    if isinstance(compute, Forward):
        return None
    kind = Backward if isinstance(compute, Weight) else Forward
    return kind(compute.microbatch, compute.chunk)


def feeds(stage: int, compute: Compute, stages: int, chunks: int) -> tuple[int, Compute] | None:
    """Return the stage and the compute, of another piece, that need this one's result.

    None at the model's two ends. The last piece's forward feeds its own backward on the same stage,
    which doesn't count here.
    """
    return _find_neighbour(stage, compute, 1, stages, chunks)


def needs(stage: int, compute: Compute, stages: int, chunks: int) -> tuple[int, Compute] | None:
    """Return the stage and the compute, of another piece, whose result this one needs."""
    return _find_neighbour(stage, compute, -1, stages, chunks)


def _find_neighbour(
    stage: int, compute: Compute, direction: int, stages: int, chunks: int
) -> tuple[int, Compute] | None:
    piece = (
        compute.chunk * stages + stage + (direction if isinstance(compute, Forward) else -direction)
    )
    if isinstance(compute, Weight) or not 0 <= piece < stages * chunks:
        return None
    return piece % stages, type(compute)(compute.microbatch, piece // stages)


def partner(stage: int, message: Message, stages: int, chunks: int) -> tuple[int, Message] | None:
    """Return a message's other end: the peer stage, and the receive (or send) that it must post.

    None if there is no peer: at the model's two ends, or if the peer is the stage itself.
    """
    find_target, end = (feeds, Receive) if isinstance(message, Send) else (needs, Send)
    target = find_target(stage, message.compute, stages, chunks)
    return (target[0], end(target[1])) if target and target[0] != stage else None
