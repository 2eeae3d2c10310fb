"""Messages between two ranks: a ring of cells for each direction, with one writer and one reader.

A message is cut into cells of a fixed size. A send is done once all of the message is in cells: a
short one at once, a long one as its receiver empties the cells. Messages from one rank to another
stay in order. A receive takes the first message with its tag. Messages with other tags that arrive
before it go into a buffer of unexpected messages. A message stays in its cells while this rank has
no receive at all, so it holds up its sender instead of filling this rank's memory.

Each cell's header gives the tag, dtype and length of its message, so a receive into a tensor that
doesn't fit is refused before any of its bytes is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from shardlab.comm.pending import CollectiveError
from shardlab.links.shared_memory.layout import CELLS, HEADER
from shardlab.links.shared_memory.signature import describe, encode
from shardlab.links.shared_memory.waiting import Fence


class Message:
    """A send to a peer, or a receive from it.

    Args:
        name: "send" or "recv".
        peer: the other end's rank on the axis.
        x: the tensor that is sent or filled.
        tag: the message's tag.
        finish: makes progress until this message is done.

    Attributes:
        rest: the bytes that are still to be copied.
        done: whether all bytes are in cells (a send) or in the tensor (a receive).
    """

    __slots__ = ("_finish", "done", "name", "peer", "rest", "signature", "size", "tag")

    def __init__(
        self, name: str, peer: int, x: Tensor, tag: int, finish: Callable[[Message], None]
    ) -> None:
        self._finish = finish
        self.name = name
        self.peer = peer
        self.tag = tag
        self.signature = encode("message", x.dtype) + x.numel()
        self.rest = x.view(-1).view(torch.uint8)
        self.size = self.rest.numel()
        self.done = False

    def wait(self) -> None:
        """Block until the message is done."""
        if not self.done:
            self._finish(self)


class _IncomingMessage:
    """A message whose cells are arriving: into a receive's tensor, or into a buffer."""

    __slots__ = ("buffer", "receive", "rest", "signature", "tag")

    def __init__(self, tag: int, signature: int, size: int, receive: Message | None) -> None:
        self.tag = tag
        self.signature = signature
        self.receive = receive
        self.buffer = None if receive else torch.empty(size, dtype=torch.uint8)
        self.rest: Tensor = receive.rest if receive else self.buffer  # type: ignore[assignment]

    def complete(self) -> None:
        """Mark the receive as done, if there is one and all bytes have arrived."""
        if self.rest.numel() == 0 and self.receive is not None:
            if self.buffer is not None:
                self.receive.rest.copy_(self.buffer)
            self.receive.done = True


class Ring(NamedTuple):
    """The memory that the two ends of a mailbox share.

    Attributes:
        words: the region's flags.
        cells: the ring's cells, uint8.
        sent: index of the word that counts the cells filled by the sender; headers follow.
        received: index of the word that counts the cells emptied by the receiver.
        wake: wakes the peer if it sleeps.
        fence: a memory fence between data and flags; None on machines that keep their order.
    """

    words: memoryview
    cells: tuple[Tensor, ...]
    sent: int
    received: int
    wake: Callable[[], None]
    fence: Fence | None

    def header(self, count: int) -> int:
        """Return the index of the first word of a cell's header."""
        return self.sent + 1 + count % CELLS * HEADER


class Outbox:
    """The messages from this rank to one peer."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._size = ring.cells[0].numel()
        self._sent = 0
        self._waiting: deque[Message] = deque()

    def start(self, message: Message) -> None:
        """Queue a send and fill the free cells."""
        self._waiting.append(message)
        self.progress()

    def progress(self) -> None:
        """Fill the free cells."""
        while self._waiting:
            message = self._waiting[0]
            while not message.done:
                if self._sent - self._ring.words[self._ring.received] >= CELLS:
                    return
                self._fill_cell(message)
            self._waiting.popleft()

    def _fill_cell(self, message: Message) -> None:
        words, cells, sent, _, wake, fence = self._ring
        part = message.rest[: self._size]
        cells[self._sent % CELLS][: part.numel()].copy_(part)
        header = self._ring.header(self._sent)
        words[header] = message.tag
        words[header + 1] = message.signature
        words[header + 2] = message.size
        if fence is not None:
            fence()
        self._sent += 1
        words[sent] = self._sent
        wake()
        message.rest = message.rest[self._size :]
        message.done = message.rest.numel() == 0


class Inbox:
    """The messages from one peer to this rank.

    Args:
        ring: the mailbox.
        names: the global ranks of the peer and of this rank, for errors.
    """

    def __init__(self, ring: Ring, names: tuple[int, int]) -> None:
        self._ring = ring
        self._size = ring.cells[0].numel()
        self._names = names
        self._received = 0
        self._waiting: deque[Message] = deque()  # receives
        self._incoming: _IncomingMessage | None = None
        self._unexpected: deque[_IncomingMessage] = deque()

    def start(self, receive: Message) -> None:
        """Queue a receive, or give it an unexpected message that arrived before."""
        for message in self._unexpected:
            if message.tag == receive.tag and message.receive is None:
                self._check_signature(message.signature, receive)
                message.receive = receive
                message.complete()
                self._unexpected.remove(message)
                return
        self._waiting.append(receive)
        self.progress()

    def progress(self) -> None:
        """Empty the filled cells, as long as a message or a receive is pending."""
        words, _, sent, _, _, fence = self._ring
        while words[sent] > self._received:
            if fence is not None:
                fence()
            if self._incoming is None:
                self._incoming = self._start_incoming()
            if self._incoming is None:
                return
            self._empty_cell(self._incoming)

    def _start_incoming(self) -> _IncomingMessage | None:
        """Read a message's header; return it with its receive, or with a buffer if none matches.

        None while no receive is queued.
        """
        header = self._ring.header(self._received)
        tag, signature, size = self._ring.words[header : header + HEADER]
        for receive in self._waiting:
            if receive.tag == tag:
                self._check_signature(signature, receive)
                self._waiting.remove(receive)
                return _IncomingMessage(tag, signature, size, receive)
        if not self._waiting:
            return None
        message = _IncomingMessage(tag, signature, size, None)
        self._unexpected.append(message)
        return message

    def _empty_cell(self, incoming: _IncomingMessage) -> None:
        words, cells, _, received, wake, fence = self._ring
        part = incoming.rest[: self._size]
        part.copy_(cells[self._received % CELLS][: part.numel()])
        if fence is not None:
            fence()
        self._received += 1
        words[received] = self._received
        wake()
        incoming.rest = incoming.rest[self._size :]
        if incoming.rest.numel() == 0:
            self._incoming = None
            incoming.complete()

    def _check_signature(self, signature: int, receive: Message) -> None:
        if signature == receive.signature:
            return
        sender, me = self._names
        raise CollectiveError(
            f"rank {sender} sends a {describe(signature)} with tag {receive.tag}, but rank {me} "
            f"receives a {describe(receive.signature)}"
        )
