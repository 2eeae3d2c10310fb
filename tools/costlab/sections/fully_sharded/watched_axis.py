"""An axis that notes when each of its collectives began and came to its end, and who waited when.

Over gloo a collective goes on in a thread of gloo's own, and its future says when the last message
came. Some of ours are completed by a local sum in `wait`; that belongs to the wait. Over shared
memory nothing moves but in `start` and `wait`, so there a collective has ended when its wait has.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending, World
from shardlab.comm.axis import Kind
from shardlab.links.fast_gloo.relay import Relay


class Flight(NamedTuple):
    """One collective, from its start to the arrival of its last message."""

    name: str
    begin: float
    end: float


class WatchedAxis(Axis):
    """Notes every collective in `flights`, and calls out around each wait.

    Args:
        world: this rank's.
        name: what a flight is called, from the collective's kind, input and result.
        waits: called with True before a wait and False after it.
        link: as in `World.axis`; over gloo "fast-gloo" unless given.
    """

    def __init__(
        self, world: World, name: Callable[[str, Tensor, Tensor], str],
        waits: Callable[[bool], None], *, link: str | None = None,
    ) -> None:  # fmt: skip
        if link is None:  # over gloo the way that the bench measures; its works can be watched
            link = "fast-gloo" if world.backend == "gloo" else world.link
        super().__init__(world, "data", tuple(range(world.size)), link)
        self.flights: list[Flight] = []
        self._called = name
        self._waits = waits

    def start(self, kind: Kind, x: Tensor, **settings: Any) -> Pending:
        """Start it, and note when."""
        begin = time.perf_counter()
        pending = super().start(kind, x, **settings)
        flight = _UnderWay(self._called(kind, x, pending._result), begin, self.flights.append)
        return _WatchedPending(pending, flight, self._waits)


class _UnderWay:
    """A collective that has begun; lands once."""

    def __init__(self, name: str, begin: float, landed: Callable[[Flight], None]) -> None:
        self._name = name
        self._landed = landed
        self._begin = begin
        self._messages = 0
        self._down = False

    def follow(self, works: list[Any]) -> None:
        """Land when the last of torch's works is done."""
        self._messages = len(works)
        for work in works:
            work.get_future().add_done_callback(self._arrived)

    def _arrived(self, _: Any) -> None:
        self._messages -= 1
        if self._messages == 0:
            self.land()

    def land(self) -> None:
        """Note the end, unless it is noted."""
        if not self._down:
            self._down = True
            self._landed(Flight(self._name, self._begin, time.perf_counter()))


class _WatchedPending(Pending):
    """A Pending whose wait is noted."""

    __slots__ = ("_flight", "_inner", "_waits")

    def __init__(self, inner: Pending, flight: _UnderWay, waits: Callable[[bool], None]) -> None:
        super().__init__(inner._result)
        self._inner, self._flight, self._waits = inner, flight, waits
        flight.follow(_works(inner._work))

    def wait(self) -> Tensor:
        self._waits(True)
        try:
            return self._inner.wait()
        finally:
            self._flight.land()
            self._waits(False)


def _works(work: Any) -> list[Any]:
    """torch's works behind one of ours; none for shared memory's."""
    if work is None or isinstance(work, Relay):  # a relay ends within its wait
        return []
    parts = getattr(work, "_works", [work])  # an Exchange has one for each peer
    return [part for part in parts if isinstance(part, torch.distributed.Work)]
