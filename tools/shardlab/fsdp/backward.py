"""One backward: which units it has come to, what it waits for, what it is reducing.

Gathers and reductions are collectives, which ranks match by their order alone. So that a unit or a
parameter that only some ranks use can't shift them, both follow the order of the forward passes,
which the ranks compare (`execution_order.py`):

- Units are gathered from the last to the first. Where this rank's loss doesn't depend on a unit,
  this rank gathers it with the others and releases it.
- Units are reduced in that order too, each before the next one is gathered, with zeros for what
  has no gradient here. Units that hold other units, as the root does, or that ran more than once
  come last: their gradients are complete only after those of the units inside.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import InitVar, dataclass

from shardlab.fsdp.flat.gradient import FlatGradient
from shardlab.fsdp.gathers import Gathers
from shardlab.fsdp.life_cycle import GradientState, ParameterState
from shardlab.fsdp.policies import BackwardPrefetch
from shardlab.fsdp.unit import Unit
from shardlab.layers.engine import will_accumulate


@dataclass(eq=False, kw_only=True)
class BackwardPass:
    """The state of one backward through the model, from its first gradient to its end.

    Args:
        units: all there are.
        outer: those that hold other units.
        left: in the order in which their forwards ended.
        watched: units with frozen parameters, once for each input whose gradient will tell.
        gathers: fills and releases them.
        prefetch: what is fetched ahead.
        sync: whether gradients are reduced, or held.
        keeps: whether units stay full for another forward.
    """

    units: Sequence[Unit]
    outer: Collection[Unit]
    left: InitVar[Iterable[Unit]]
    watched: InitVar[Iterable[Unit]]
    gathers: Gathers
    prefetch: BackwardPrefetch | None
    sync: bool
    keeps: bool

    def __post_init__(self, left: Iterable[Unit], watched: Iterable[Unit]) -> None:
        runs = list(left)
        self._begun: set[Unit] = set()
        self._reducing: list[FlatGradient] = []
        # Backward meets a unit that ran twice where its last run is undone.
        self._order = list(dict.fromkeys(reversed(runs)))
        self._settled = 0  # units of that order that are over, on whatever rank
        times = Counter(runs)
        self._late = {unit for unit in self._order if unit in self.outer or times[unit] > 1}
        in_turn = sorted(self._order, key=self._late.__contains__)
        trained = [g for unit in in_turn for g in unit.gradients if g.flat.shard_f.requires_grad]
        # torch.autograd.grad for an input alone reaches no parameter, and reduces nothing.
        wanted = any(will_accumulate(leaf) for g in trained for leaf in g.flat.leaves)
        self._queue = deque(trained if wanted else ())
        self._whole: set[FlatGradient] = set()  # gradients that wait for their turn at most
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
        if unit in self._order:
            self._settle_before(self._order.index(unit))
        self._begun.add(unit)
        if unit.versions != versions:
            raise RuntimeError(
                f"the parameters of unit {unit.name or '(root)'} changed between forward and "
                "backward, so its gradient would mix old and new: step the optimizer after "
                "backward, or run forward again"
            )
        self._fill(unit)

    def complete(self, unit: Unit, gradient: FlatGradient) -> None:
        """Every leaf of one of `unit`'s flat parameters has its gradient."""
        self.arrived(unit)
        self._whole.add(gradient)
        if all(whole in self._whole for whole in unit.gradients):
            self._reduce_in_turn()

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
        self._settle_before(len(self._order))
        self._whole.update(self._queue)
        self._reduce_in_turn()
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

    def _fill(self, unit: Unit) -> None:
        ahead = self.prefetch is BackwardPrefetch.BACKWARD_PRE
        self.gathers.fill(unit, self._next(unit) if ahead else ())

    def _settle_before(self, place: int) -> None:
        """Do what is left to do for the units before a place of the order, here as on all ranks."""
        for unit in self._order[self._settled : place]:
            skipped = unit not in self._begun
            self._begun.add(unit)
            if skipped and unit.state is not ParameterState.UNSHARDED:
                self._fill(unit)
                self.gathers.release(unit)
            if self._missing[unit] and self.prefetch is BackwardPrefetch.BACKWARD_POST:
                self.gathers.fetch(self._next(unit))
            if unit not in self._late and self._queue:
                self._whole.update(unit.gradients)
                self._reduce_in_turn()
        self._settled = max(self._settled, place)

    def _reduce_in_turn(self) -> None:
        """Start the reductions at the head of the queue that nothing holds up."""
        while self.sync and self._queue and self._queue[0] in self._whole:
            self._reduce(self._queue.popleft())

    def _next(self, unit: Unit) -> list[Unit]:
        at = self._order.index(unit) if unit in self._order else len(self._order)
        return [other for other in self._order[at + 1 :] if other not in self._begun][:1]

    def _reduce(self, gradient: FlatGradient) -> None:
        # Wait for the one before, so that two gradients over the whole axis exist at most.
        for before in self._reducing[-1:]:
            before.start_replicate()
        gradient.start_reduce()
        self._reducing.append(gradient)
