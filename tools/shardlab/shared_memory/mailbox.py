"""Messages between two ranks: a ring of cells for each direction, filled by one, emptied by the other.

A message goes in cells of a fixed size. A send is done once all of it is in cells, so a short one
is done at once and a long one as its receiver empties them. Messages from one rank to another stay
in order; a receive takes the first one with its tag, and what came before it with another tag is
kept aside. A message that nobody has asked for stays in its cells and holds up its sender, not
this rank's memory.

Each cell's header says which tag, dtype and length its message has, so a receive into a tensor
that doesn't fit is refused before a byte of it is written.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from shardlab.faults import CollectiveError
from shardlab.shared_memory.layout import CELLS, HEADER
from shardlab.shared_memory.patience import Fence
from shardlab.shared_memory.signature import describe, stem


class Message:
    """A tensor on its way to or from a peer.

    Attributes:
        peer: the other end's place among the ranks.
        rest: the bytes still to be moved.
        done: whether all are: into cells (a send), or into the tensor (a receive).
    """

    __slots__ = ("done", "peer", "rest", "signature", "size", "tag")

    def __init__(self, peer: int, x: Tensor, tag: int) -> None:
        self.peer = peer
        self.tag = tag
        self.signature = stem("message", x.dtype) + x.numel()
        self.rest = x.view(-1).view(torch.uint8)
        self.size = self.rest.numel()
        self.done = False


class _Arriving:
    """A message whose cells are coming in, for a receive or aside."""

    __slots__ = ("aside", "receive", "rest", "signature", "tag")

    def __init__(self, tag: int, signature: int, size: int, receive: Message | None) -> None:
        self.tag = tag
        self.signature = signature
        self.receive = receive
        self.aside = torch.empty(size, dtype=torch.uint8) if receive is None else None
        self.rest = self.aside if receive is None else receive.rest

    def hand_over(self) -> None:
        """Finish the receive, if all has come and somebody asked."""
        if self.rest.numel() == 0 and self.receive is not None:
            if self.aside is not None:
                self.receive.rest.copy_(self.aside)
            self.receive.done = True


class Outbox:
    """The messages from this rank to one peer.

    Args:
        words: the region's flags.
        cells: the ring, bytes [CELLS, cell].
        sent: index of this rank's count, the headers after it.
        received: index of the receiver's count.
        fence: orders values and flags, where the machine doesn't.
    """

    def __init__(
        self, words: memoryview, cells: Tensor, sent: int, received: int, fence: Fence | None
    ) -> None:
        self._words = words
        self._cells = cells.unbind()
        self._size = cells.shape[1]
        self._sent_word = sent
        self._received_word = received
        self._fence = fence
        self._sent = 0
        self._waiting: deque[Message] = deque()

    def start(self, message: Message) -> None:
        """Queue a message."""
        self._waiting.append(message)
        self.move()

    def move(self) -> None:
        """Fill what cells are free."""
        words = self._words
        while self._waiting:
            message = self._waiting[0]
            while not message.done:
                if self._sent - words[self._received_word] >= CELLS:
                    return
                self._fill(message)
            self._waiting.popleft()

    def _fill(self, message: Message) -> None:
        cell = self._sent % CELLS
        part = message.rest[: self._size]
        self._cells[cell][: part.numel()].copy_(part)
        header = self._sent_word + 1 + cell * HEADER
        self._words[header] = message.tag
        self._words[header + 1] = message.signature
        self._words[header + 2] = message.size
        if self._fence is not None:
            self._fence()
        self._sent += 1
        self._words[self._sent_word] = self._sent
        message.rest = message.rest[self._size :]
        message.done = message.rest.numel() == 0

    @property
    def busy(self) -> bool:
        """Whether anything waits for room."""
        return bool(self._waiting)


class Inbox:
    """The messages from one peer to this rank.

    Args:
        words, cells, sent, received, fence: as for `Outbox`.
        names: the peer's and this rank's number, for errors.
    """

    def __init__(
        self, words: memoryview, cells: Tensor, sent: int, received: int, fence: Fence | None,
        names: tuple[int, int],
    ) -> None:  # fmt: skip
        self._words = words
        self._cells = cells.unbind()
        self._size = cells.shape[1]
        self._sent_word = sent
        self._received_word = received
        self._fence = fence
        self._names = names
        self._received = 0
        self._waiting: deque[Message] = deque()  # receives
        self._arriving: _Arriving | None = None
        self._aside: deque[_Arriving] = deque()

    def start(self, receive: Message) -> None:
        """Queue a receive, or give it a message that was kept aside."""
        for kept in self._aside:
            if kept.tag == receive.tag and kept.receive is None:
                self._match(kept.signature, receive)
                kept.receive = receive
                kept.hand_over()
                self._aside.remove(kept)
                return
        self._waiting.append(receive)
        self.move()

    def move(self) -> None:
        """Empty the cells that have come, as far as somebody waits for something."""
        while self._words[self._sent_word] > self._received:
            if self._fence is not None:
                self._fence()
            if self._arriving is None:
                self._arriving = self._begin()
            if self._arriving is None:
                return
            self._empty(self._arriving)

    def _begin(self) -> _Arriving | None:
        """Read a message's header: find the receive for it, or keep it aside."""
        header = self._sent_word + 1 + self._received % CELLS * HEADER
        tag, signature, size = self._words[header : header + HEADER]
        for receive in self._waiting:
            if receive.tag == tag:
                self._match(signature, receive)
                self._waiting.remove(receive)
                return _Arriving(tag, signature, size, receive)
        if not self._waiting:
            return None
        aside = _Arriving(tag, signature, size, None)
        self._aside.append(aside)
        return aside

    def _empty(self, arriving: _Arriving) -> None:
        part = arriving.rest[: self._size]
        part.copy_(self._cells[self._received % CELLS][: part.numel()])
        if self._fence is not None:
            self._fence()
        self._received += 1
        self._words[self._received_word] = self._received
        arriving.rest = arriving.rest[self._size :]
        if arriving.rest.numel() == 0:
            self._arriving = None
            arriving.hand_over()

    def _match(self, signature: int, receive: Message) -> None:
        if signature == receive.signature:
            return
        sender, me = self._names
        raise CollectiveError(
            f"rank {sender} sends a {describe(signature)} with tag {receive.tag}, but rank {me} "
            f"receives a {describe(receive.signature)}"
        )

    @property
    def busy(self) -> bool:
        """Whether anything waits for its message."""
        return bool(self._waiting) or self._arriving is not None
