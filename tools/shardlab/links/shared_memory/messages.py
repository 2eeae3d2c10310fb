"""All mailboxes of a link: those from this rank to each peer, and those from each peer to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from shardlab.links.shared_memory.layout import RegionLayout
from shardlab.links.shared_memory.mailbox import Inbox, Message, Outbox, Ring
from shardlab.links.shared_memory.patience import Bells, Fence
from shardlab.links.shared_memory.region import Region

Finish = Callable[[Message, str], None]


class Sent:
    """A send or receive under way."""

    __slots__ = ("_finish", "_message", "_name")

    def __init__(self, message: Message, name: str, finish: Finish) -> None:
        self._message = message
        self._name = name
        self._finish = finish

    def wait(self) -> None:
        """Block until all of it is in cells (a send), or has come (a receive)."""
        if not self._message.done:
            self._finish(self._message, self._name)


class Several:
    """Messages under way, waited for as one."""

    def __init__(self, works: Sequence[Sent]) -> None:
        self._works = works

    def wait(self) -> None:
        """Block until all are done."""
        for work in self._works:
            work.wait()


class Messages:
    """The mailboxes of one rank, made when first used.

    Args:
        region: where they lie.
        layout: where in it.
        ranks: the ranks' numbers, for errors.
        me: this rank's place among them.
        bells: wake the other end of a message.
        fence: orders values and flags, where the machine doesn't.
    """

    def __init__(
        self, region: Region, layout: RegionLayout, *, ranks: Sequence[int], me: int, bells: Bells,
        fence: Fence | None,
    ) -> None:  # fmt: skip
        self._region = region
        self._layout = layout
        self._ranks = ranks
        self._me = me
        self._bells = bells
        self._fence = fence
        self._outboxes: dict[int, Outbox] = {}
        self._inboxes: dict[int, Inbox] = {}

    def start_send(self, x: Tensor, to: int, tag: int) -> Message:
        """Start sending to the rank at place `to`."""
        if to not in self._outboxes:
            self._outboxes[to] = Outbox(self._ring(self._me, to))
        message = Message(to, x, tag)
        self._outboxes[to].start(message)
        return message

    def start_recv(self, out: Tensor, source: int, tag: int) -> Message:
        """Start receiving from the rank at place `source`."""
        if source not in self._inboxes:
            names = (self._ranks[source], self._ranks[self._me])
            self._inboxes[source] = Inbox(self._ring(source, self._me), names)
        message = Message(source, out, tag)
        self._inboxes[source].start(message)
        return message

    def move(self) -> None:
        """Fill and empty what cells can be, without waiting."""
        for outbox in self._outboxes.values():
            outbox.move()
        for inbox in self._inboxes.values():
            inbox.move()

    def _ring(self, source: int, to: int) -> Ring:
        layout = self._layout
        return Ring(
            words=self._region.words,
            cells=layout.mailbox(self._region.bytes, source, to).unbind(),
            sent=layout.sent(source, to),
            received=layout.received(source, to),
            wake=partial(self._bells.ring, to if source == self._me else source),
            fence=self._fence,
        )
