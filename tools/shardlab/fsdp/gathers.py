"""Decides when units are gathered, in which order, the next ones early, and when they are released.

At most one unit is prefetched, so at the peak of a FULL_SHARD step two units and the root are
unsharded. PyTorch prefetches one unit at a time too. It also lets two all-gathers be in flight
before the CPU waits for a free (`limit_all_gathers`, fsdp/_limiter_utils.py), which it needs
because its gathers allocate on a stream of their own.

`ExecutionOrder` has the order of units. Prefetching assumes that an iteration repeats the order of
the last one. The first iteration prefetches nothing. If a later iteration leaves the order,
prefetching stops until its end, units that were prefetched for nothing are released, and a warning
is issued once. The new order is expected of the next iteration. A wrong guess costs time and one
unit's memory, but gives no wrong value.

Every rank must run the same order, because gathers are collectives, and a gather pairs with
another rank's gather of another unit. So ranks compare the order of every training forward: the
first before each unit's gather; each later one by eight bytes that are sent at its end. Over gloo
they are read before backward, over NCCL at backward's end: sooner, they would wait for the GPU.

A rank that leaves the order may be alone: the others gather units that it would not gather, and
would wait for it. Where units stay unsharded until backward, this rank gathers all that was still
expected, as the others do, and compares the order at once: the eight bytes that the others send at
the end of their forward meet its own. Where units are resharded after forward, this would send the
model twice. There the ranks that leave meet at their store, and if one rank left alone, its error
comes after the world's timeout.

PyTorch: `_ExecOrderData` (fsdp/_exec_order_utils.py) keeps the first iteration's order for good;
under TORCH_DISTRIBUTED_DEBUG=DETAIL it warns that another order may give wrong results or hang.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

from shardlab.comm import Axis, CollectiveError
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


class ExecutionOrder:
    """The sequence of units that forward enters; it may contain a unit more than once.

    Attributes:
        expected: the sequence expected of the next forward; empty before the first forward.
        changes: how often a training forward differed from the expected sequence.
    """

    def __init__(self) -> None:
        self.expected: list[Unit] = []
        self.changes = 0
        self._axes: Sequence[Axis] = ()
        self._seen: list[Unit] = []
        self._follows = self._trains = False
        self._fetch: Callable[[Iterable[Unit]], None] | None = None
        # Comparisons that were started: over which axis, what this rank ran, how to finish it.
        self._comparisons: list[tuple[Axis, str, Callable[[], list[int]]]] = []

    def begin(
        self, axes: Sequence[Axis] = (), *, trains: bool = True,
        fetch: Callable[[Iterable[Unit]], None] | None = None,
    ) -> None:  # fmt: skip
        """Begin a forward of the whole model.

        Args:
            axes: the axes whose ranks run it.
            trains: whether a backward may follow.
            fetch: gathers units, in a training forward that keeps them unsharded; None in others.
        """
        self._axes, self._trains, self._fetch = axes, trains, fetch
        self._seen = []
        self._follows = bool(self.expected)

    def enter(self, unit: Unit) -> bool:
        """Record that `unit` runs; return whether the forward follows the expected order so far.

        Raises:
            CollectiveError: this forward leaves the order here, and another rank's does not.
        """
        action = f"run unit {unit.name or '(root)'} of FSDP"
        if self._follows and self.next_expected() != [unit]:
            self._leave(action)
        elif self._trains and not (self._follows or unit in self.expected or unit in self._seen):
            self._compare_before(action)  # other ranks may not gather it
        self._seen.append(unit)
        return self._follows

    def _leave(self, action: str) -> None:
        """Leave the expected order, with every other rank."""
        expected = self.expected[len(self._seen) :]
        self._follows = False
        if self._fetch is None or len({*expected}) < len(expected):
            for axis in self._axes:
                axis.rendezvous(action)
            return
        self._fetch(expected)
        self._compare_before(action)

    def _compare_before(self, action: str) -> None:
        self._start_comparisons(f"{_join_names(self._seen)}, and would then {action}", self._axes)
        self.compare()

    def _start_comparisons(self, names: str, axes: Iterable[Axis]) -> None:
        self._comparisons += [(axis, names, axis.start_comparison(names)) for axis in axes]

    def close(self) -> None:
        """End the forward; if more units were expected, every rank must end it here."""
        if self.next_expected():
            self._leave("end the forward")

    def next_expected(self) -> list[Unit]:
        """Return the next expected unit, in a list; empty if none is expected."""
        return self.expected[len(self._seen) :][:1] if self._follows else []

    def end(self, axes: Iterable[Axis] = ()) -> None:
        """Finish a training forward of the whole model; the next one is expected to repeat it.

        Args:
            axes: the axes whose ranks must have run the same order.

        Raises:
            CollectiveError: this is the first forward, and the ranks' orders differ.
        """
        self._start_comparisons(_join_names(self._seen), axes)
        if not self.expected:
            self.compare()
        if self.expected and self.expected != self._seen:
            if not self.changes:
                warnings.warn(
                    "this forward ran its units in another order than the last: "
                    f"{_join_names(self._seen)} after {_join_names(self.expected)}. Units that "
                    "were prefetched for nothing are released; every rank must change its order "
                    "alike",
                    stacklevel=2,
                )
            self.changes += 1
        self.expected = self._seen

    def compare(self) -> None:
        """Compare the ranks' orders of their last training forward.

        Raises:
            CollectiveError: on every rank, if the orders differ. The gradients mix units then, and
                must not be used.
        """
        comparisons, self._comparisons = self._comparisons, []
        for axis, names, finish in comparisons:
            if differing := finish():
                raise CollectiveError(
                    f"ranks {differing} of the {axis.name} axis run other units of FSDP, or in "
                    f"another order, than rank {axis.ranks[axis.rank]}, which ran {names}: "
                    "gradients would mix units, so take no step with them. Run every unit on every "
                    "rank, with its output times 0 where it doesn't count, or train replicas "
                    "(StepGradients)"
                )


def _join_names(units: Sequence[Unit]) -> str:
    return ", ".join(unit.name or "(root)" for unit in units)
