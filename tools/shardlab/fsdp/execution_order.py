"""In which order units run forward: recorded in one iteration, expected in the next.

What is fetched ahead is a guess that this iteration repeats the last. The first iteration has no
guess and fetches nothing ahead. Where a later one leaves the order, fetching ahead stops until its
end, what was fetched in vain is released, a warning says so once, and the order just seen is what
the next iteration is expected to repeat. A wrong guess costs time and one unit's memory, never a
wrong value; but every rank must run the same order, since gathers are collectives: another rank's
gather of another unit looks the same. So ranks compare the first order of all; a later change is
warned of, and named where the world checks (`World.join(check=True)`).

PyTorch: `_ExecOrderData` (fsdp/_exec_order_utils.py) keeps the first iteration's order for good;
under TORCH_DISTRIBUTED_DEBUG=DETAIL it warns that another order may give wrong results or hang.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from shardlab.comm import Axis
from shardlab.fsdp.unit import Unit


class ExecutionOrder:
    """The sequence of units that forward enters; a unit may stand in it more than once.

    Attributes:
        expected: what the next forward is expected to do; empty before the first was seen.
        changes: how often a training forward differed from what was expected.
    """

    def __init__(self) -> None:
        self.expected: list[Unit] = []
        self.changes = 0
        self._seen: list[Unit] = []
        self._follows = False

    def begin(self) -> None:
        """A forward of the whole model begins."""
        self._seen = []
        self._follows = bool(self.expected)

    def enter(self, unit: Unit) -> bool:
        """Note that `unit` runs; return whether that is as expected so far."""
        self._follows = self._follows and self.following() == [unit]
        self._seen.append(unit)
        return self._follows

    def following(self) -> list[Unit]:
        """Return the next unit, if anything is expected."""
        return self.expected[len(self._seen) :][:1] if self._follows else []

    def end(self, axes: Iterable[Axis] = ()) -> None:
        """A training forward of the whole model is over: it is what the next should look like.

        Args:
            axes: whose ranks must have run the first one in the same order.

        Raises:
            CollectiveError: they have not.
        """
        if not self.expected:
            for axis in axes:
                axis.demand_same(f"run units in the order {_names(self._seen)}")
        elif self.expected != self._seen:
            if not self.changes:
                warnings.warn(
                    "this forward ran its units in another order than the last: "
                    f"{_names(self._seen)} after {_names(self.expected)}. What was fetched ahead "
                    "in vain is released; every rank must change its order alike",
                    stacklevel=2,
                )
            self.changes += 1
        self.expected = self._seen


def _names(units: Sequence[Unit]) -> str:
    return ", ".join(unit.name or "(root)" for unit in units)
