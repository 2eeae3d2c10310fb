"""One backward pass of FSDP: the units that it has reached, and its gathers and reductions.

Gathers and reductions are collectives, which ranks match by their order. A unit or a parameter that
only some ranks use must not shift them. Both therefore follow the order of the forward passes,
which the ranks compare (`gathers.py`):

- Units are gathered from the last to the first. A rank whose loss doesn't depend on a unit gathers
  the unit with the other ranks and releases it.
- Units are reduced in that order too, each before the next one is gathered, with zeros for
  parameters without a gradient on this rank. Units that contain other units, such as the root, and
  units that ran more than once are reduced last: their gradients are complete only after those of
  the units inside.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from shardlab.fsdp.flat_gradient import FlatGradient
from shardlab.fsdp.gathers import Gathers
from shardlab.fsdp.life_cycle import GradientState, ParameterState
from shardlab.fsdp.unit import Unit
from shardlab.layers.engine import will_accumulate


@dataclass(eq=False, kw_only=True)
class BackwardPass:
    """The state of one backward through the model, from its first gradient to its end.

    Args:
        units: all units.
        outer: the units that contain other units.
        forward_order: the units in the order in which their forwards ended.
        watched: units with frozen parameters, once for each of their inputs with a gradient.
        gathers: unshards and releases units.
        sync: whether gradients are reduced; otherwise they are held.
        keeps: whether units stay unsharded for another forward.
    """

    units: Sequence[Unit]
    outer: Collection[Unit]
    forward_order: InitVar[Iterable[Unit]]
    watched: InitVar[Iterable[Unit]]
    gathers: Gathers
    sync: bool
    keeps: bool

    def __post_init__(self, forward_order: Iterable[Unit], watched: Iterable[Unit]) -> None:
        runs = list(forward_order)
        self._begun: set[Unit] = set()
        self._reducing: list[FlatGradient] = []
        # Backward reaches a unit that ran twice at its last run.
        self._order = list(dict.fromkeys(reversed(runs)))
        self._finished = 0  # units of that order that are done, whether or not this rank uses them
        run_counts = Counter(runs)
        self._reduced_last = {
            unit for unit in self._order if unit in self.outer or run_counts[unit] > 1
        }
        reduction_order = sorted(self._order, key=self._reduced_last.__contains__)
        trained = [
            g for unit in reduction_order for g in unit.gradients if g.flat.shard_f.requires_grad
        ]
        # torch.autograd.grad for an input only reaches no parameter, so nothing is reduced.
        reduces = any(will_accumulate(leaf) for g in trained for leaf in g.flat.leaves)
        self._queue = deque(trained if reduces else ())
        # Complete gradients, which only wait for their turn.
        self._complete: set[FlatGradient] = set()
        inputs = Counter(watched)
        self._missing = {unit: len(unit.gradients) for unit in self.units}
        for unit in self.units:
            if unit.holds_frozen:  # without a watched input, it is done at the end of backward
                self._missing[unit] += max(inputs[unit], 1)

    def begin_unit(self, unit: Unit, versions: tuple[int, ...]) -> None:
        """Unshard `unit`, as the gradient of one of its outputs exists.

        Args:
            unit: the unit.
            versions: the version counters of its shards at the forward.

        Raises:
            RuntimeError: its shards were written to since that forward.
        """
        if unit in self._begun:
            return
        if unit in self._order:
            self._finish_before(self._order.index(unit))
        self._begun.add(unit)
        if unit.versions != versions:
            raise RuntimeError(
                f"the parameters of unit {unit.name or '(root)'} changed between forward and "
                "backward, so its gradient would mix old and new: step the optimizer after "
                "backward, or run forward again"
            )
        self.gathers.before_backward(unit, self._next(unit))

    def complete(self, unit: Unit, gradient: FlatGradient) -> None:
        """Note that all leaves of one of `unit`'s flat parameters have their gradients."""
        self.count_arrival(unit)
        self._complete.add(gradient)
        if all(unit_gradient in self._complete for unit_gradient in unit.gradients):
            self._reduce_in_turn()

    def count_arrival(self, unit: Unit) -> None:
        """Count one of the events for which the end of `unit`'s backward waits."""
        self._missing[unit] -= 1
        if self._missing[unit] == 0:
            if not self.keeps:
                self.gathers.release(unit)
            self.gathers.after_backward(self._next(unit))

    def end(self) -> None:
        """Reduce or hold the remaining gradients, wait for all reductions, release all units."""
        self._finish_before(len(self._order))
        self._complete.update(self._queue)
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

    def _finish_before(self, position: int) -> None:
        """Finish the units before a position of the order, in the same way on all ranks."""
        for unit in self._order[self._finished : position]:
            skipped = unit not in self._begun
            self._begun.add(unit)
            if skipped and unit.state is not ParameterState.UNSHARDED:
                self.gathers.before_backward(unit, self._next(unit))
                self.gathers.release(unit)
            if self._missing[unit]:
                self.gathers.after_backward(self._next(unit))
            if unit not in self._reduced_last and self._queue:
                self._complete.update(unit.gradients)
                self._reduce_in_turn()
        self._finished = max(self._finished, position)

    def _reduce_in_turn(self) -> None:
        """Start the reductions of complete gradients at the head of the queue."""
        while self.sync and self._queue and self._queue[0] in self._complete:
            self._reduce(self._queue.popleft())

    def _next(self, unit: Unit) -> list[Unit]:
        position = self._order.index(unit) if unit in self._order else len(self._order)
        return [
            candidate for candidate in self._order[position + 1 :] if candidate not in self._begun
        ][:1]

    def _reduce(self, gradient: FlatGradient) -> None:
        # Wait for the previous one, so that at most two gradients over the whole axis exist.
        for previous in self._reducing[-1:]:
            previous.start_replicate()
        gradient.start_reduce()
        self._reducing.append(gradient)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in `value`, which may be a tensor, tuple, list, mapping or dataclass."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name))


def before_backward_of(tensor: Tensor, hook: Callable[[Any], None]) -> None:
    """Call `hook` just before autograd runs the backward of the operation that made `tensor`.

    All `on_gradient` hooks of the tensor have been called by then, in any order of registration.
    """
    if tensor.grad_fn is None:
        on_gradient(tensor, hook)
    else:
        tensor.grad_fn.register_prehook(hook)


def on_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call `hook` when autograd has the gradient of `tensor`, in every backward through it."""
    handle: RemovableHandle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    return handle
