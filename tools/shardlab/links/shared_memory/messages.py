"""All mailboxes of a link: those from this rank to each peer, and those from each peer to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from shardlab.links.shared_memory.layout import RegionLayout
from shardlab.links.shared_memory.mailbox import Inbox, Message, Outbox, Ring
from shardlab.links.shared_memory.region import Region
from shardlab.links.shared_memory.waiting import Fence, FutexWaiter


@dataclass(eq=False)
class MessageBatch:
    """Several messages with one `wait`."""

    works: Sequence[Message]

    def wait(self) -> None:
        """Block until all are done."""
        for work in self.works:
            work.wait()


@dataclass(eq=False, kw_only=True)
class Messages:
    """The mailboxes of one rank, each made at its first use.

    Args:
        region: the shared memory.
        layout: the mailboxes' offsets in it.
        ranks: the members' global ranks, for errors.
        me: this rank's index among them.
        waiter: wakes the peer of a message.
        fence: a memory fence between data and flags; None on machines that keep their order.
        finish: makes progress on messages until a given one is done.
    """

    region: Region
    layout: RegionLayout
    ranks: Sequence[int]
    me: int
    waiter: FutexWaiter
    fence: Fence | None
    finish: Callable[[Message], None]
    outboxes: dict[int, Outbox] = field(default_factory=dict)
    inboxes: dict[int, Inbox] = field(default_factory=dict)

    def start_send(self, x: Tensor, to: int, tag: int) -> Message:
        """Start sending `x` to rank `to` of this axis."""
        if to not in self.outboxes:
            self.outboxes[to] = Outbox(self._ring(self.me, to))
        message = Message("send", to, x, tag, self.finish)
        self.outboxes[to].start(message)
        return message

    def start_recv(self, out: Tensor, source: int, tag: int) -> Message:
        """Start receiving `out` from rank `source` of this axis."""
        if source not in self.inboxes:
            names = (self.ranks[source], self.ranks[self.me])
            self.inboxes[source] = Inbox(self._ring(source, self.me), names)
        message = Message("recv", source, out, tag, self.finish)
        self.inboxes[source].start(message)
        return message

    def progress(self) -> None:
        """Fill free cells and empty filled ones, without waiting."""
        for outbox in self.outboxes.values():
            outbox.progress()
        for inbox in self.inboxes.values():
            inbox.progress()

    def _ring(self, source: int, to: int) -> Ring:
        layout = self.layout
        return Ring(
            words=self.region.words,
            cells=layout.mailbox(self.region.bytes, source, to).unbind(),
            sent=layout.sent_word(source, to),
            received=layout.received_word(source, to),
            wake=partial(self.waiter.wake, to if source == self.me else source),
            fence=self.fence,
        )
