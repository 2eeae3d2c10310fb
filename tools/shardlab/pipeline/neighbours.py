"""The messages between a pipeline stage and its neighbours during one run.

A stage waits only for a message that a compute is about to use. Sends are started and waited for
later. Receives are started before their turn, each into a tensor of its own, and waited for in
`receive`. If a receive is already posted, gloo sends at once from the sender's thread; otherwise
the two processes' threads must first agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending
from shardlab.pipeline.action import (
    Action,
    Backward,
    Message,
    Receive,
    Send,
    feeds,
    name,
    partner,
    parts,
)

# How many sends may be pending before the oldest is waited for. A send keeps its tensor alive. The
# receive of the last but one was posted long before, so this wait is short.
SENDS = 2
# How many receives are posted before their turn in the schedule. Each holds a tensor.
RECEIVES = 2


@dataclass(eq=False)
class Neighbours:
    """Sends and receives of one stage, all of one shape and dtype.

    On a GPU no receive is posted early. NCCL runs the calls of one stream in order, so an early
    receive would delay the sends after it, on which it may depend.

    Args:
        axis: the pipeline axis; its rank is the stage.
        actions: this stage's part of the schedule.
        chunks: v, the number of chunks of each stage.
        shape: the shape of every activation and gradient between two stages.
        dtype: their dtype.
        device: the device of received tensors.
    """

    axis: Axis
    actions: Sequence[Action]
    chunks: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        self._queued: dict[Send, Tensor] = {}
        self._leaving: deque[Pending] = deque()
        self._arriving: dict[Receive, Pending] = {}
        every = (part for action in self.actions for part in parts(action))
        self._upcoming = deque(m for m in every if isinstance(m, Receive))
        self._lookahead = 0 if self.device.type == "cuda" else RECEIVES
        self._due = 0  # receives whose turn has come and that are not started

    def is_first(self, chunk: int) -> bool:
        """Return whether this stage's chunk is the model's first piece, which receives no input."""
        return self.axis.rank == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        """Return whether this stage's chunk is the model's last piece, which computes the loss."""
        return self.axis.rank == self.axis.size - 1 and chunk == self.chunks - 1

    def queue_send(self, send: Send, x: Tensor) -> None:
        """Store a tensor for a send of the schedule; on an axis of one rank it is received at once.

        Raises:
            ValueError: the tensor has another shape or dtype than the next stage expects.
        """
        if x.shape != self.shape or x.dtype != self.dtype:
            raise ValueError(
                f"{name(send)} on stage {self.axis.rank} is {x.dtype} of shape {tuple(x.shape)}; "
                f"between stages goes {self.dtype} of shape {self.shape}: tell `run` the shape "
                "and dtype that every stage but the last returns"
            )
        if self.axis.size > 1:
            self._queued[send] = x
            return
        target = feeds(0, send.compute, 1, self.chunks)
        assert target is not None
        self._arriving[Receive(target[1])] = Pending(x)

    def start(self, messages: Sequence[Message]) -> None:
        """Start the messages of an exchange, and the next receives ahead of their turn."""
        leaving = [m for m in messages if isinstance(m, Send)]
        self._due += len(messages) - len(leaving)
        awaited: list[Receive] = []
        while self._upcoming and self._due > -self._lookahead:
            awaited.append(self._upcoming.popleft())
            self._due -= 1
        buffers = [torch.empty(self.shape, dtype=self.dtype, device=self.device) for _ in awaited]
        send_ends, receive_ends = [self._end(m) for m in leaving], [self._end(m) for m in awaited]
        pending = self.axis.start_exchange(
            [(self._queued.pop(m), end[0]) for m, end in zip(leaving, send_ends, strict=True)],
            [(buffer, end[0]) for buffer, end in zip(buffers, receive_ends, strict=True)],
            tags=[end[1] for end in send_ends + receive_ends],
        )
        self._leaving.extend(pending[: len(leaving)])
        self._arriving.update(zip(awaited, pending[len(leaving) :], strict=True))
        while len(self._leaving) > SENDS:
            self._leaving.popleft().wait()

    def receive(self, receive: Receive) -> Tensor:
        """Wait for a message and return it."""
        return self._arriving.pop(receive).wait()

    def finish(self) -> None:
        """Wait for the pending sends."""
        while self._leaving:
            self._leaving.popleft().wait()

    def _end(self, message: Message) -> tuple[int, int]:
        """Return a message's peer stage and its tag, which both ends compute from the send."""
        end = partner(self.axis.rank, message, self.axis.size, self.chunks)
        assert end is not None
        send = message if isinstance(message, Send) else end[1]
        compute = send.compute
        return end[0], 1 + 2 * (compute.microbatch * self.chunks + compute.chunk) + isinstance(
            compute, Backward
        )
