"""When units are full: asked for in time or ahead (the gather is flat/parameter's), and released.

One unit is fetched ahead at most, so at the peak of a FULL_SHARD step two units and the root are
full. PyTorch prefetches one unit a pass too; besides, it lets two all-gathers be in flight before
the CPU waits for a free (`limit_all_gathers`, fsdp/_limiter_utils.py), which it needs since its
gathers allocate on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardlab.fsdp.life_cycle import ParameterState
from shardlab.fsdp.unit import Unit

SHARDED, UNSHARDED = ParameterState.SHARDED, ParameterState.UNSHARDED
GATHERING = ParameterState.GATHERING


class Gathers:
    """Fills and releases units; knows which were fetched ahead.

    Args:
        units: all there are.

    Attributes:
        pinned: whether units stay full whatever happens.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.pinned = False
        self._units = units
        self._ahead: set[Unit] = set()  # gathered or gathering, and not used yet

    def fill(self, unit: Unit, ahead: Iterable[Unit] = ()) -> None:
        """Make `unit` full; start the gathers `ahead` before waiting for its own."""
        if unit.is_stale:
            self._release(unit)
        self._ahead.discard(unit)
        if unit.state is SHARDED:
            unit.start_gather()
        self.fetch(ahead)
        if unit.state is GATHERING:
            unit.finish_gather()

    def fetch(self, units: Iterable[Unit]) -> None:
        """Start the gathers of those of `units` that are sharded."""
        for unit in units:
            if unit.state is SHARDED:
                unit.start_gather()
                self._ahead.add(unit)

    def release(self, unit: Unit) -> None:
        """Let `unit` go unless it is sharded or pinned; a gather in flight is waited for first."""
        if not self.pinned:
            self._release(unit)

    def release_ahead(self, but: Unit | None = None) -> None:
        """Let go what was fetched ahead, except `but`."""
        if self._ahead:
            for unit in self._units:  # in their order, the same on every rank
                if unit in self._ahead and unit is not but:
                    self.release(unit)

    def release_all(self) -> None:
        """Let every unit go."""
        for unit in self._units:
            self.release(unit)

    def _release(self, unit: Unit) -> None:
        if unit.state is GATHERING:
            unit.finish_gather()
        if unit.state is UNSHARDED:
            unit.release()
        self._ahead.discard(unit)
