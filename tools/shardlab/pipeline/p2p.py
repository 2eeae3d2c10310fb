"""One stage's messages in one run: what is on its way out, what on its way in.

Nothing here waits but for what a compute is about to use. Sends are started and left; receives are
started where the schedule says, each into a tensor of its own, and waited for when they are taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending
from shardlab.pipeline.action import (
    Message,
    Receive,
    RecvBackward,
    RecvForward,
    Send,
    SendBackward,
    SendForward,
    name,
)
from shardlab.pipeline.piece import feeds, partner, received, served

# How many sends may be under way before the oldest is waited for. A send keeps its tensor; in a
# whole schedule the receive of the one before the last is long posted, so that wait is short.
UNDER_WAY = 2


class PointToPoint:
    """Sends and receives of one stage, all of one shape and dtype.

    Args:
        axis: the pipeline axis; its rank is the stage.
        chunks: v, how many chunks each stage holds.
        shape: of every activation and gradient between two stages.
        dtype: of the same.
        device: where to receive them.
    """

    def __init__(
        self,
        axis: Axis,
        chunks: int,
        *,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._axis = axis
        self._chunks = chunks
        self._shape = tuple(shape)
        self._dtype = dtype
        self._device = device
        self._ready: dict[Send, Tensor] = {}
        self._leaving: deque[Pending] = deque()
        self._arriving: dict[Receive, Pending] = {}

    def is_first(self, chunk: int) -> bool:
        """Whether this stage's chunk is the model's first piece: its input is no message."""
        return self._axis.rank == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        """Whether this stage's chunk is the model's last piece: its output goes to the loss."""
        return self._axis.rank == self._axis.size - 1 and chunk == self._chunks - 1

    def give(self, send: Send, x: Tensor) -> None:
        """Take a result that is to be sent; on an axis of one rank it is there at once.

        Raises:
            ValueError: it has another shape or dtype than the next stage expects.
        """
        if tuple(x.shape) != self._shape or x.dtype != self._dtype:
            raise ValueError(
                f"{name(send)} on stage {self._axis.rank} is {x.dtype} of shape {tuple(x.shape)}; "
                f"between stages goes {self._dtype} of shape {self._shape}: tell `run` the shape "
                "and dtype that every stage but the last returns"
            )
        if self._axis.size > 1:
            self._ready[send] = x
            return
        target = feeds(0, served(send), 1, self._chunks)
        assert target is not None
        self._arriving[received(target[1])] = Pending(x)

    def start(self, messages: Sequence[Message]) -> None:
        """Start sends and receives together, so that they may cross."""
        sends: list[tuple[Tensor, int]] = []
        receives: list[tuple[Tensor, int]] = []
        awaited: list[Receive] = []
        tags: list[int] = []
        for message in messages:
            end = partner(self._axis.rank, message, self._axis.size, self._chunks)
            assert end is not None
            if isinstance(message, SendForward | SendBackward):
                sends.append((self._ready.pop(message), end[0]))
                tags.append(self._tag(message))
            elif isinstance(message, RecvForward | RecvBackward):
                room = torch.empty(self._shape, dtype=self._dtype, device=self._device)
                receives.append((room, end[0]))
                tags.append(self._tag(end[1]))
                awaited.append(message)
        pending = self._axis.start_exchange(sends, receives, tags=tags)
        self._leaving.extend(pending[: len(sends)])
        self._arriving.update(zip(awaited, pending[len(sends) :], strict=True))
        while len(self._leaving) > UNDER_WAY:
            self._leaving.popleft().wait()

    def take(self, receive: Receive) -> Tensor:
        """Wait for a message and return it."""
        return self._arriving.pop(receive).wait()

    def finish(self) -> None:
        """Wait for what is still on its way out."""
        while self._leaving:
            self._leaving.popleft().wait()

    def _tag(self, send: Message) -> int:
        """Number a message, from 1: both ends know it by what is sent."""
        backward = isinstance(send, SendBackward)
        return 1 + 2 * (send.microbatch * self._chunks + send.chunk) + backward
