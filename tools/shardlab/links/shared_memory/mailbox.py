"""Messages between two ranks: a ring of cells for each direction, one fills and one empties it.

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
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from shardlab.comm.pending import CollectiveError
from shardlab.links.shared_memory.layout import CELLS, HEADER
from shardlab.links.shared_memory.patience import Fence
from shardlab.links.shared_memory.signature import describe, stem


class Message:
    """A tensor on its way to or from a peer.

    Args:
        name: "send" or "recv".
        peer: the other end's place among the ranks.
        x: what is sent, or where it is to be received.
        tag: of the message.
        finish: moves it on until it is done.

    Attributes:
        rest: the bytes still to be moved.
        done: whether all are: into cells (a send), or into the tensor (a receive).
    """

    __slots__ = ("_finish", "done", "name", "peer", "rest", "signature", "size", "tag")

    def __init__(
        self, name: str, peer: int, x: Tensor, tag: int, finish: Callable[[Message], None]
    ) -> None:
        self._finish = finish
        self.name = name
        self.peer = peer
        self.tag = tag
        self.signature = stem("message", x.dtype) + x.numel()
        self.rest = x.view(-1).view(torch.uint8)
        self.size = self.rest.numel()
        self.done = False

    def wait(self) -> None:
        """Block until it is done."""
        if not self.done:
            self._finish(self)


class _Arriving:
    """A message whose cells are coming in, for a receive or aside."""

    __slots__ = ("aside", "receive", "rest", "signature", "tag")

    def __init__(self, tag: int, signature: int, size: int, receive: Message | None) -> None:
        self.tag = tag
        self.signature = signature
        self.receive = receive
        self.aside = None if receive else torch.empty(size, dtype=torch.uint8)
        self.rest: Tensor = receive.rest if receive else self.aside  # type: ignore[assignment]

    def hand_over(self) -> None:
        """Finish the receive, if all has come and somebody asked."""
        if self.rest.numel() == 0 and self.receive is not None:
            if self.aside is not None:
                self.receive.rest.copy_(self.aside)
            self.receive.done = True


class Ring(NamedTuple):
    """What the two ends of a mailbox share, and how they order it.

    Attributes:
        words: the region's flags.
        cells: the ring's cells, bytes.
        sent: index of the sender's count of cells filled; their headers follow.
        received: index of the receiver's count of cells emptied.
        wake: wakes the other end, if it sleeps.
        fence: orders values and flags, where the machine doesn't.
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
        """Queue a message."""
        self._waiting.append(message)
        self.move()

    def move(self) -> None:
        """Fill what cells are free."""
        while self._waiting:
            message = self._waiting[0]
            while not message.done:
                if self._sent - self._ring.words[self._ring.received] >= CELLS:
                    return
                self._fill(message)
            self._waiting.popleft()

    def _fill(self, message: Message) -> None:
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
        names: the peer's and this rank's number, for errors.
    """

    def __init__(self, ring: Ring, names: tuple[int, int]) -> None:
        self._ring = ring
        self._size = ring.cells[0].numel()
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
        words, _, sent, _, _, fence = self._ring
        while words[sent] > self._received:
            if fence is not None:
                fence()
            if self._arriving is None:
                self._arriving = self._begin()
            if self._arriving is None:
                return
            self._empty(self._arriving)

    def _begin(self) -> _Arriving | None:
        """Read a message's header: find the receive for it, or keep it aside."""
        header = self._ring.header(self._received)
        tag, signature, size = self._ring.words[header : header + HEADER]
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
        words, cells, _, received, wake, fence = self._ring
        part = arriving.rest[: self._size]
        part.copy_(cells[self._received % CELLS][: part.numel()])
        if fence is not None:
            fence()
        self._received += 1
        words[received] = self._received
        wake()
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
