"""An axis that notes when each of its collectives began and came to its end, and who waited when.

Over gloo a collective goes on in a thread of gloo's own, and its future says when the last message
came. Some of ours are completed by a local sum in `wait`; that belongs to the wait. Over shared
memory nothing moves but in `start` and `wait`, so there a collective has ended when its wait has.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shardlab.comm import Axis, Pending, World
from shardlab.comm.axis import Kind


class WatchedAxis(Axis):
    """Notes every collective in `flights`, and calls out around each wait.

    Args:
        world: this rank's.
        name: what a flight is called, from the collective's kind, input and result.
        waits: called with True before a wait and False after it.

    Attributes:
        flights: (name, start, arrival of the last message).
    """

    def __init__(
        self, world: World, name: Callable[[str, Tensor, Tensor], str],
        waits: Callable[[bool], None],
    ) -> None:  # fmt: skip
        # Over gloo the way that the bench measures; its works can be watched.
        link = "fast-gloo" if world.backend == "gloo" else world.link
        super().__init__(world, "data", tuple(range(world.size)), link)
        self.flights: list[tuple[str, float, float]] = []
        self.waits = waits
        self._called = name

    def start(self, kind: Kind, x: Tensor, **settings: Any) -> Pending:
        """Start it, and note when."""
        begin = time.perf_counter()
        pending = super().start(kind, x, **settings)
        return _UnderWay(self, pending, self._called(kind, x, pending._result), begin)


class _UnderWay(Pending):
    """A collective that has begun; lands once, with its last message or else with its wait."""

    __slots__ = ("_begin", "_flights", "_inner", "_messages", "_name", "_waits")

    def __init__(self, axis: WatchedAxis, inner: Pending, name: str, begin: float) -> None:
        super().__init__(inner._result)
        self._inner, self._name, self._begin = inner, name, begin
        self._waits = axis.waits
        self._flights: list[tuple[str, float, float]] | None = axis.flights
        works = _works(inner._work)
        self._messages = len(works)
        for work in works:
            work.get_future().add_done_callback(self._arrived)

    def wait(self) -> Tensor:
        self._waits(True)
        try:
            return self._inner.wait()
        finally:
            self._land()
            self._waits(False)

    def _arrived(self, _: Any) -> None:
        self._messages -= 1
        if self._messages == 0:
            self._land()

    def _land(self) -> None:
        """Note the end, unless it is noted."""
        flights, self._flights = self._flights, None
        if flights is not None:
            flights.append((self._name, self._begin, time.perf_counter()))


def _works(work: Any) -> list[Any]:
    """torch's works behind one of ours; none for shared memory's."""
    if work is None:
        return []
    parts = getattr(work, "_works", [work])  # an exchange has one or one for each peer
    return [part for part in parts if isinstance(part, torch.distributed.Work)]
