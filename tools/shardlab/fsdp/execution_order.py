"""In which order units run forward: recorded in one iteration, expected in the next.

What is fetched ahead is a guess that this iteration repeats the last. The first iteration has no
guess and fetches nothing ahead. Where a later one leaves the order, fetching ahead stops until its
end, what was fetched in vain is released, a warning says so once, and the order just seen is what
the next iteration is expected to repeat. A wrong guess costs time and one unit's memory, never a
wrong value; but every rank must run the same order, since gathers are collectives: another rank's
gather of another unit looks the same. So ranks compare the order of every training forward: the
first before each unit's gather, each later one by eight bytes that are sent at its end and read
before the next forward, or before the step that its gradients are for.

A rank that leaves the order may be alone: the others gather what it would not, and would wait for
it. Where units stay full until backward, it gathers all that was still expected, as the others do,
and compares the order at once: the eight bytes that the others send at the end meet its own. Where
units are released after forward this would send the model twice. There the ranks that leave meet
at their store, and if one left alone, its error comes after the world's timeout.

PyTorch: `_ExecOrderData` (fsdp/_exec_order_utils.py) keeps the first iteration's order for good;
under TORCH_DISTRIBUTED_DEBUG=DETAIL it warns that another order may give wrong results or hang.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from shardlab.comm import Axis, CollectiveError
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
        self._axes: Sequence[Axis] = ()
        self._seen: list[Unit] = []
        self._follows = self._trains = False
        self._fetch: Callable[[Iterable[Unit]], None] | None = None
        self._comparisons: list[Callable[[], None]] = []  # that are under way

    def begin(
        self, axes: Sequence[Axis] = (), *, trains: bool = True,
        fetch: Callable[[Iterable[Unit]], None] | None = None,
    ) -> None:  # fmt: skip
        """A forward of the whole model begins.

        Args:
            axes: whose ranks run it.
            trains: whether a backward may follow.
            fetch: gathers units, in a training forward that keeps them full; None in any other.
        """
        self._axes, self._trains, self._fetch = axes, trains, fetch
        self._seen = []
        self._follows = bool(self.expected)

    def enter(self, unit: Unit) -> bool:
        """Note that `unit` runs; return whether that is as expected so far.

        Raises:
            CollectiveError: this forward leaves the order here, and not on every rank alike.
        """
        doing = f"run unit {unit.name or '(root)'} of FSDP"
        if self._follows and self.following() != [unit]:
            self._leave(doing)
        elif self._trains and not (self._follows or unit in self.expected or unit in self._seen):
            self._compare_before(doing)  # other ranks may not gather it
        self._seen.append(unit)
        return self._follows

    def _leave(self, doing: str) -> None:
        """Leave the expected order, with every other rank."""
        expected = self.expected[len(self._seen) :]
        self._follows = False
        if self._fetch is None or len({*expected}) < len(expected):
            for axis in self._axes:
                axis.rendezvous(doing)
            return
        self._fetch(expected)
        self._compare_before(doing)

    def _compare_before(self, doing: str) -> None:
        words = f"{_names(self._seen)}, and would then {doing}"
        self._comparisons += [_start_comparison(axis, words) for axis in self._axes]
        self.compare()

    def close(self) -> None:
        """The forward ends here; if more was expected, every rank's does."""
        if self.following():
            self._leave("end the forward")

    def following(self) -> list[Unit]:
        """Return the next unit, if anything is expected."""
        return self.expected[len(self._seen) :][:1] if self._follows else []

    def end(self, axes: Iterable[Axis] = ()) -> None:
        """A training forward of the whole model is over: it is what the next should look like.

        Args:
            axes: whose ranks must have run it in the same order.

        Raises:
            CollectiveError: it is the first, and they have not.
        """
        self._comparisons += [_start_comparison(axis, _names(self._seen)) for axis in axes]
        if not self.expected:
            self.compare()
        if self.expected and self.expected != self._seen:
            if not self.changes:
                warnings.warn(
                    "this forward ran its units in another order than the last: "
                    f"{_names(self._seen)} after {_names(self.expected)}. What was fetched ahead "
                    "in vain is released; every rank must change its order alike",
                    stacklevel=2,
                )
            self.changes += 1
        self.expected = self._seen

    def compare(self) -> None:
        """Read what the ranks have told of their last training forward.

        Raises:
            CollectiveError: on every rank, if their orders differ: the gradients that followed mix
                units, and no step may be taken with them.
        """
        comparisons, self._comparisons = self._comparisons, []
        for comparison in comparisons:
            comparison()


def _start_comparison(axis: Axis, names: str) -> Callable[[], None]:
    digest = torch.tensor([zlib.crc32(names.encode())])
    digests = torch.empty(axis.size, dtype=digest.dtype)
    return partial(
        _finish_comparison, axis, axis.start_gather_small(digest, digests), digest, digests, names
    )


def _finish_comparison(
    axis: Axis, wait: Callable[[], None], digest: Tensor, digests: Tensor, names: str
) -> None:
    wait()
    differing = [r for r, d in zip(axis.ranks, digests.tolist(), strict=True) if d != int(digest)]
    if differing:
        raise CollectiveError(
            f"ranks {differing} of the {axis.name} axis run other units of FSDP, or in another "
            f"order, than rank {axis.ranks[axis.rank]}, which ran {names}: gradients would mix "
            "units, so take no step with them. Run every unit on every rank, with its output "
            "times 0 where it doesn't count, or train replicas (StepGradients)"
        )


def _names(units: Sequence[Unit]) -> str:
    return ", ".join(unit.name or "(root)" for unit in units)
