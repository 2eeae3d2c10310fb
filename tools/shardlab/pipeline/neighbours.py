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


Form = tuple[tuple[int, ...], torch.dtype]  # of a tensor: its shape and its dtype


@dataclass(eq=False)
class Neighbours:
    """Sends and receives of one stage; all activations between stages are of the same forms.

    A message is a tuple of tensors. A gradient's message has the floating-point ones of them only.

    On a GPU no receive is posted early. NCCL runs the calls of one stream in order, so an early
    receive would delay the sends after it, on which it may depend.

    Args:
        axis: the pipeline axis; its rank is the stage.
        actions: this stage's part of the schedule.
        chunks: v, the number of chunks of each stage.
        forms: the form of each tensor between two stages.
        device: the device of received tensors.
    """

    axis: Axis
    actions: Sequence[Action]
    chunks: int
    forms: tuple[Form, ...]
    device: torch.device

    def __post_init__(self) -> None:
        self._queued: dict[Send, tuple[Tensor, ...]] = {}
        self._leaving: deque[list[Pending]] = deque()
        self._arriving: dict[Receive, list[Pending]] = {}
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

    def queue_send(self, send: Send, tensors: tuple[Tensor, ...]) -> None:
        """Store tensors for a send of the schedule; on an axis of one rank they arrive at once.

        Raises:
            ValueError: a tensor has another shape or dtype than the next stage expects.
        """
        if others := [type(x).__name__ for x in tensors if not isinstance(x, Tensor)]:
            raise ValueError(
                f"stage {self.axis.rank} returns a {others[0]}: every stage but the last must "
                "return a tensor or a tuple of tensors, which the next stage gets as its arguments"
            )
        forms = [(tuple(x.shape), x.dtype) for x in tensors]
        if forms != self._forms_of(send):
            raise ValueError(
                f"{name(send)} on stage {self.axis.rank} is {_join_forms(forms)}; between stages "
                f"goes {_join_forms(self._forms_of(send))}: tell `run` the shape and dtype that "
                "every stage but the last returns"
            )
        if self.axis.size > 1:
            self._queued[send] = tensors
            return
        target = feeds(0, send.compute, 1, self.chunks)
        assert target is not None
        self._arriving[Receive(target[1])] = [Pending(x) for x in tensors]

    def start(self, messages: Sequence[Message]) -> None:
        """Start the messages of an exchange, and the next receives ahead of their turn."""
        leaving: list[Message] = [m for m in messages if isinstance(m, Send)]
        self._due += len(messages) - len(leaving)
        awaited: list[Receive] = []
        while self._upcoming and self._due > -self._lookahead:
            awaited.append(self._upcoming.popleft())
            self._due -= 1
        sends, receives, tags = [], [], []
        for message in (*leaving, *awaited):
            peer, tag = self._end(message)
            forms = self._forms_of(message)
            tags += [tag * len(self.forms) + number for number in range(len(forms))]
            if isinstance(message, Send):
                sends += [(x, peer) for x in self._queued.pop(message)]
            else:
                receives += [
                    (torch.empty(shape, dtype=dtype, device=self.device), peer)
                    for shape, dtype in forms
                ]
        pending = iter(self.axis.start_exchange(sends, receives, tags=tags))
        for message in (*leaving, *awaited):
            parts_of_message = [next(pending) for _ in self._forms_of(message)]
            if isinstance(message, Send):
                self._leaving.append(parts_of_message)
            else:
                self._arriving[message] = parts_of_message
        self._wait(SENDS)

    def receive(self, receive: Receive) -> tuple[Tensor, ...]:
        """Wait for a message and return its tensors."""
        return tuple(part.wait() for part in self._arriving.pop(receive))

    def finish(self) -> None:
        """Wait for the pending sends."""
        self._wait(0)

    def _wait(self, pending: int) -> None:
        """Wait for the oldest sends, until `pending` are left."""
        while len(self._leaving) > pending:
            for part in self._leaving.popleft():
                part.wait()

    def _forms_of(self, message: Message) -> list[Form]:
        gradient = isinstance(message.compute, Backward)
        return [form for form in self.forms if form[1].is_floating_point or not gradient]

    def _end(self, message: Message) -> tuple[int, int]:
        """Return a message's peer stage and its tag, which both ends compute from the send."""
        end = partner(self.axis.rank, message, self.axis.size, self.chunks)
        assert end is not None
        send = message if isinstance(message, Send) else end[1]
        compute = send.compute
        return end[0], 1 + 2 * (compute.microbatch * self.chunks + compute.chunk) + isinstance(
            compute, Backward
        )


def _join_forms(forms: Sequence[Form]) -> str:
    return " and ".join(f"{dtype} of shape {shape}" for shape, dtype in forms) or "nothing"
