"""All mailboxes of a link: those from this rank to each peer, and those from each peer to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from shardlab.links.shared_memory.layout import RegionLayout
from shardlab.links.shared_memory.mailbox import Inbox, Message, Outbox, Ring
from shardlab.links.shared_memory.patience import Bells, Fence
from shardlab.links.shared_memory.region import Region


@dataclass(eq=False)
class Several:
    """Messages under way, waited for as one."""

    works: Sequence[Message]

    def wait(self) -> None:
        """Block until all are done."""
        for work in self.works:
            work.wait()


@dataclass(eq=False, kw_only=True)
class Messages:
    """The mailboxes of one rank, made when first used.

    Args:
        region: where they lie.
        layout: where in it.
        ranks: the ranks' numbers, for errors.
        me: this rank's place among them.
        bells: wake the other end of a message.
        fence: orders values and flags, where the machine doesn't.
        finish: moves messages on until one is done.
    """

    region: Region
    layout: RegionLayout
    ranks: Sequence[int]
    me: int
    bells: Bells
    fence: Fence | None
    finish: Callable[[Message], None]
    outboxes: dict[int, Outbox] = field(default_factory=dict)
    inboxes: dict[int, Inbox] = field(default_factory=dict)

    def start_send(self, x: Tensor, to: int, tag: int) -> Message:
        """Start sending to the rank at place `to`."""
        if to not in self.outboxes:
            self.outboxes[to] = Outbox(self._ring(self.me, to))
        message = Message("send", to, x, tag, self.finish)
        self.outboxes[to].start(message)
        return message

    def start_recv(self, out: Tensor, source: int, tag: int) -> Message:
        """Start receiving from the rank at place `source`."""
        if source not in self.inboxes:
            names = (self.ranks[source], self.ranks[self.me])
            self.inboxes[source] = Inbox(self._ring(source, self.me), names)
        message = Message("recv", source, out, tag, self.finish)
        self.inboxes[source].start(message)
        return message

    def move(self) -> None:
        """Fill and empty what cells can be, without waiting."""
        for outbox in self.outboxes.values():
            outbox.move()
        for inbox in self.inboxes.values():
            inbox.move()

    def _ring(self, source: int, to: int) -> Ring:
        layout = self.layout
        return Ring(
            words=self.region.words,
            cells=layout.mailbox(self.region.bytes, source, to).unbind(),
            sent=layout.sent(source, to),
            received=layout.received(source, to),
            wake=partial(self.bells.ring, to if source == self.me else source),
            fence=self.fence,
        )
