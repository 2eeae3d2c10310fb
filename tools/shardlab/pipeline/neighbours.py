"""What a stage says to those beside it in one run: what is on its way out, what on its way in.

Nothing here waits but for what a compute is about to use. Sends are started and left. Receives are
started before their turn, each into a tensor of its own, and waited for when they are taken: where
a receive is posted already gloo sends at once, from the sender's own thread; else the two sides'
threads first have to agree.
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

# How many sends may be under way before the oldest is waited for. A send keeps its tensor; the
# receive of the one before the last is long posted, so that this wait is short.
SENDS = 2
# How many receives are posted before the schedule's turn for them comes. Each keeps a tensor.
RECEIVES = 2


@dataclass(eq=False)
class Neighbours:
    """Sends and receives of one stage, all of one shape and dtype.

    Not so on a GPU: NCCL runs what one stream is given in order, and a receive posted early would
    hold up the sends behind it, on which it may depend. There all is started in its turn.

    Args:
        axis: the pipeline axis; its rank is the stage.
        actions: this stage's part of the schedule.
        chunks: v, how many chunks each stage holds.
        shape: of every activation and gradient between two stages.
        dtype: of the same.
        device: where to receive them.
    """

    axis: Axis
    actions: Sequence[Action]
    chunks: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        self._ready: dict[Send, Tensor] = {}
        self._leaving: deque[Pending] = deque()
        self._arriving: dict[Receive, Pending] = {}
        every = (part for action in self.actions for part in parts(action))
        self._coming = deque(m for m in every if isinstance(m, Receive))
        self._ahead = 0 if self.device.type == "cuda" else RECEIVES
        self._due = 0  # receives whose turn has come and that are not started

    def is_first(self, chunk: int) -> bool:
        """Whether this stage's chunk is the model's first piece: its input is no message."""
        return self.axis.rank == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        """Whether this stage's chunk is the model's last piece: its output goes to the loss."""
        return self.axis.rank == self.axis.size - 1 and chunk == self.chunks - 1

    def give(self, send: Send, x: Tensor) -> None:
        """Take a result that is to be sent; on an axis of one rank it is there at once.

        Raises:
            ValueError: it has another shape or dtype than the next stage expects.
        """
        if x.shape != self.shape or x.dtype != self.dtype:
            raise ValueError(
                f"{name(send)} on stage {self.axis.rank} is {x.dtype} of shape {tuple(x.shape)}; "
                f"between stages goes {self.dtype} of shape {self.shape}: tell `run` the shape "
                "and dtype that every stage but the last returns"
            )
        if self.axis.size > 1:
            self._ready[send] = x
            return
        target = feeds(0, send.compute, 1, self.chunks)
        assert target is not None
        self._arriving[Receive(target[1])] = Pending(x)

    def start(self, messages: Sequence[Message]) -> None:
        """Start sends and receives together, so that they may cross; and coming receives early."""
        leaving = [m for m in messages if isinstance(m, Send)]
        self._due += len(messages) - len(leaving)
        awaited: list[Receive] = []
        while self._coming and self._due > -self._ahead:
            awaited.append(self._coming.popleft())
            self._due -= 1
        rooms = [torch.empty(self.shape, dtype=self.dtype, device=self.device) for _ in awaited]
        there, here = [self._end(m) for m in leaving], [self._end(m) for m in awaited]
        pending = self.axis.start_exchange(
            [(self._ready.pop(m), end[0]) for m, end in zip(leaving, there, strict=True)],
            [(room, end[0]) for room, end in zip(rooms, here, strict=True)],
            tags=[end[1] for end in there + here],
        )
        self._leaving.extend(pending[: len(leaving)])
        self._arriving.update(zip(awaited, pending[len(leaving) :], strict=True))
        while len(self._leaving) > SENDS:
            self._leaving.popleft().wait()

    def take(self, receive: Receive) -> Tensor:
        """Wait for a message and return it."""
        return self._arriving.pop(receive).wait()

    def finish(self) -> None:
        """Wait for what is still on its way out."""
        while self._leaving:
            self._leaving.popleft().wait()

    def _end(self, message: Message) -> tuple[int, int]:
        """Return a message's other end and its tag, a number that both ends know by the send."""
        end = partner(self.axis.rank, message, self.axis.size, self.chunks)
        assert end is not None
        send = message if isinstance(message, Send) else end[1]
        of = send.compute
        return end[0], 1 + 2 * (of.microbatch * self.chunks + of.chunk) + isinstance(of, Backward)
