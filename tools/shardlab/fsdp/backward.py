"""One backward: which units it has come to, what it waits for, what it is reducing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass

from shardlab.fsdp.flat.gradient import FlatGradient
from shardlab.fsdp.gathers import Gathers
from shardlab.fsdp.life_cycle import GradientState
from shardlab.fsdp.policies import BackwardPrefetch
from shardlab.fsdp.unit import Unit


@dataclass(eq=False, kw_only=True)
class BackwardPass:
    """The state of one backward through the model, from its first gradient to its end.

    Args:
        units: all there are.
        left: in the order in which their forwards ended.
        watched: units with frozen parameters, once for each input whose gradient will tell.
        gathers: fills and releases them.
        prefetch: what is fetched ahead.
        sync: whether gradients are reduced, or held.
        keeps: whether units stay full for another forward.
    """

    units: Sequence[Unit]
    left: InitVar[Iterable[Unit]]
    watched: InitVar[Iterable[Unit]]
    gathers: Gathers
    prefetch: BackwardPrefetch | None
    sync: bool
    keeps: bool

    def __post_init__(self, left: Iterable[Unit], watched: Iterable[Unit]) -> None:
        self._begun: set[Unit] = set()
        self._reducing: list[FlatGradient] = []
        # Backward meets a unit that ran twice where its last run is undone.
        self._order = list(dict.fromkeys(reversed(list(left))))
        inputs = Counter(watched)
        self._missing = {unit: len(unit.gradients) for unit in self.units}
        for unit in self.units:
            if unit.holds_frozen:  # with no input to watch, only the end of backward is safe
                self._missing[unit] += max(inputs[unit], 1)

    def reach(self, unit: Unit, versions: tuple[int, ...]) -> None:
        """The gradient of one of `unit`'s outputs is there: make it full.

        Raises:
            RuntimeError: its shards were written to since the forward that saw `versions`.
        """
        if unit in self._begun:
            return
        self._begun.add(unit)
        if unit.versions != versions:
            raise RuntimeError(
                f"the parameters of unit {unit.name or '(root)'} changed between forward and "
                "backward, so its gradient would mix old and new: step the optimizer after "
                "backward, or run forward again"
            )
        ahead = self.prefetch is BackwardPrefetch.BACKWARD_PRE
        self.gathers.fill(unit, self._next(unit) if ahead else ())

    def complete(self, unit: Unit, gradient: FlatGradient) -> None:
        """Every leaf of one of `unit`'s flat parameters has its gradient."""
        self.arrived(unit)
        if self.sync:
            self._reduce(gradient)

    def arrived(self, unit: Unit) -> None:
        """One of the things has come that the end of `unit`'s backward waits for."""
        self._missing[unit] -= 1
        if self._missing[unit] == 0:
            if not self.keeps:
                self.gathers.release(unit)
            if self.prefetch is BackwardPrefetch.BACKWARD_POST:
                self.gathers.fetch(self._next(unit))

    def end(self) -> None:
        """Reduce or hold what is left over, wait for all of it, let every unit go."""
        for unit in self.units:
            for gradient in unit.gradients:
                if self.sync and gradient.state in (GradientState.FILLING, GradientState.HELD):
                    self._reduce(gradient)
                elif gradient.state is GradientState.FILLING:
                    gradient.hold()
        for gradient in self._reducing:
            if gradient.state is GradientState.REDUCING:
                gradient.deposit()
        if not self.keeps:
            self.gathers.release_all()

    def _next(self, unit: Unit) -> list[Unit]:
        at = self._order.index(unit) if unit in self._order else len(self._order)
        return [other for other in self._order[at + 1 :] if other not in self._begun][:1]

    def _reduce(self, gradient: FlatGradient) -> None:
        # Wait for the one before, so that two gradients over the whole axis exist at most.
        for before in self._reducing[-1:]:
            before.start_replicate()
        gradient.start_reduce()
        self._reducing.append(gradient)
