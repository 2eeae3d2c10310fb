"""Which stage holds which piece of the model, and so who feeds whom.

With p stages, chunk c of stage s is piece c·p + s: the pieces go round the stages, chunk by chunk.
A forward feeds the next piece's forward, a backward the piece before's backward.
"""

from __future__ import annotations

from shardlab.pipeline.action import (
    Backward,
    Compute,
    Forward,
    Message,
    Receive,
    RecvBackward,
    RecvForward,
    Send,
    SendBackward,
    SendForward,
)


def feeds(stage: int, compute: Compute, stages: int, chunks: int) -> tuple[int, Compute] | None:
    """Return the stage and compute that need this one's result.

    None at the model's two ends; that the last piece's forward feeds its own backward stays on one
    stage and is not told here.
    """
    step = 1 if isinstance(compute, Forward) else -1
    return _beside(stage, compute, step, stages, chunks)


def needs(stage: int, compute: Compute, stages: int, chunks: int) -> tuple[int, Compute] | None:
    """Return the stage and compute whose result this one needs, of another piece."""
    step = -1 if isinstance(compute, Forward) else 1
    return _beside(stage, compute, step, stages, chunks)


def _beside(
    stage: int, compute: Compute, step: int, stages: int, chunks: int
) -> tuple[int, Compute] | None:
    piece = compute.chunk * stages + stage + step
    if not 0 <= piece < stages * chunks:
        return None
    return piece % stages, type(compute)(compute.microbatch, piece // stages)


def sent(compute: Compute) -> Send:
    """Return the message that takes a compute's result away."""
    kind = SendForward if isinstance(compute, Forward) else SendBackward
    return kind(compute.microbatch, compute.chunk)


def received(compute: Compute) -> Receive:
    """Return the message that brings what a compute starts from."""
    kind = RecvForward if isinstance(compute, Forward) else RecvBackward
    return kind(compute.microbatch, compute.chunk)


def served(message: Message) -> Compute:
    """Return the compute whose result a send takes away, or whose input a receive brings."""
    kind = Forward if isinstance(message, SendForward | RecvForward) else Backward
    return kind(message.microbatch, message.chunk)


def partner(stage: int, message: Message, stages: int, chunks: int) -> tuple[int, Message] | None:
    """Return the other end of a message: its stage, and the receive (send) to be posted there.

    None where there is no other end: at the model's two ends, or on the stage itself.
    """
    if isinstance(message, SendForward | SendBackward):
        there = feeds(stage, served(message), stages, chunks)
        return (there[0], received(there[1])) if there and there[0] != stage else None
    there = needs(stage, served(message), stages, chunks)
    return (there[0], sent(there[1])) if there and there[0] != stage else None
