"""Decides when units are gathered, the next ones early, and released; flat/parameter.py gathers.

At most one unit is prefetched, so at the peak of a FULL_SHARD step two units and the root are
unsharded. PyTorch prefetches one unit at a time too. It also lets two all-gathers be in flight
before the CPU waits for a free (`limit_all_gathers`, fsdp/_limiter_utils.py), which it needs
because its gathers allocate on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardlab.fsdp.life_cycle import ParameterState
from shardlab.fsdp.policies import BackwardPrefetch
from shardlab.fsdp.unit import Unit

SHARDED, UNSHARDED = ParameterState.SHARDED, ParameterState.UNSHARDED
GATHERING = ParameterState.GATHERING


class Gathers:
    """Unshards, prefetches and releases units.

    Args:
        units: all units.
        forward: whether the next unit of forward is gathered early.
        backward: when the next unit of backward is gathered early; None for never.

    Attributes:
        pinned: whether units stay unsharded, so that `release` does nothing.
    """

    def __init__(
        self, units: Sequence[Unit], forward: bool, backward: BackwardPrefetch | None
    ) -> None:
        self.pinned = False
        self._units, self._forward, self._backward = units, forward, backward
        # Units that are gathered or gathering and weren't used yet.
        self._prefetched: set[Unit] = set()

    def before_forward(self, unit: Unit, following: Iterable[Unit]) -> None:
        """Gather `unit`; before waiting for it, start on `following` if forward prefetches."""
        self.unshard(unit, following if self._forward else ())

    def before_backward(self, unit: Unit, following: Iterable[Unit]) -> None:
        """Gather `unit`; before waiting for it, start on `following` under BACKWARD_PRE."""
        self.unshard(unit, following if self._backward is BackwardPrefetch.BACKWARD_PRE else ())

    def after_backward(self, following: Iterable[Unit]) -> None:
        """Start on `following` under BACKWARD_POST."""
        if self._backward is BackwardPrefetch.BACKWARD_POST:
            self.prefetch(following)

    def unshard(self, unit: Unit, prefetched: Iterable[Unit] = ()) -> None:
        """Gather `unit`'s full parameters; start the gathers of `prefetched` before waiting."""
        if unit.is_stale:
            self._release(unit)
        self._prefetched.discard(unit)
        if unit.state is SHARDED:
            unit.start_gather()
        self.prefetch(prefetched)
        if unit.state is GATHERING:
            unit.finish_gather()

    def prefetch(self, units: Iterable[Unit]) -> None:
        """Start the gathers of the units that are sharded."""
        for unit in units:
            if unit.state is SHARDED:
                unit.start_gather()
                self._prefetched.add(unit)

    def release(self, unit: Unit) -> None:
        """Free `unit`'s full parameters unless units are pinned; waits for a gather in flight."""
        if not self.pinned:
            self._release(unit)

    def release_prefetched(self, keep: Unit | None = None) -> None:
        """Release the units that were prefetched, except `keep`."""
        if self._prefetched:
            for unit in self._units:  # in their order, the same on every rank
                if unit in self._prefetched and unit is not keep:
                    self.release(unit)

    def release_all(self) -> None:
        """Release all units."""
        for unit in self._units:
            self.release(unit)

    def _release(self, unit: Unit) -> None:
        if unit.state is GATHERING:
            unit.finish_gather()
        if unit.state is UNSHARDED:
            unit.release()
        self._prefetched.discard(unit)
