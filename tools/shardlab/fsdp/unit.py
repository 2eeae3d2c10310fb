"""A unit: a module whose parameters are gathered, released and reduced together.

It owns the state machine of its full parameters (`life_cycle.py`) and carries it out on its flat
parameters: usually one; more where parameters differ in dtype or in being frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from shardlab.fsdp.flat.gradient import FlatGradient
from shardlab.fsdp.flat.parameter import FlatParameter
from shardlab.fsdp.life_cycle import PARAMETERS, LifeCycle, ParameterState
from shardlab.fsdp.placeholder import ShardedParameter


class Place(NamedTuple):
    """A place where a module looks for a parameter.

    Attributes:
        module: the module.
        attribute: the parameter's name in it.
        name: its name in the whole model.
        parameter: the parameter, the same object in several slots where it is tied.
    """

    module: nn.Module
    attribute: str
    name: str
    parameter: nn.Parameter


class Unit:
    """One module's parameters, less those of units inside it.

    Args:
        name: the module's name in the model.
        module: whose forward is bracketed by a gather and a release.
        flats: its flat parameters; none is fine.
        gradients: of those that train.
        slots: where its modules look for the parameters.
    """

    def __init__(
        self, name: str, module: nn.Module, flats: Sequence[FlatParameter],
        gradients: Sequence[FlatGradient], slots: Sequence[Place],
    ) -> None:  # fmt: skip
        self.name = name
        self.module = module
        self.flats = tuple(flats)
        self.gradients = tuple(gradients)
        self._life = LifeCycle(f"unit {name}", PARAMETERS, ParameterState.SHARDED)
        self._places: list[tuple[dict[str, Any], str, nn.Parameter, ShardedParameter]] = []
        whole = {id(leaf) for flat in flats if flat.is_whole for leaf in flat.leaves}
        for slot in slots:
            # In the module's __dict__ an attribute is found before its parameters and buffers.
            slot.module._parameters.pop(slot.attribute, None)
            attributes = slot.module.__dict__
            if id(slot.parameter) in whole:  # never sharded, so always in place
                attributes[slot.attribute] = slot.parameter
            else:
                stand_in = ShardedParameter(slot.name, slot.parameter.shape)
                self._places.append((attributes, slot.attribute, slot.parameter, stand_in))
        self._withdraw()

    @property
    def state(self) -> ParameterState:
        """Where the full parameters are."""
        return self._life.state

    @property
    def versions(self) -> tuple[int, ...]:
        """The shards' version counters: equal as long as no in-place write was seen."""
        return tuple([flat.version for flat in self.flats])

    @property
    def holds_frozen(self) -> bool:
        """Whether some of its parameters were frozen when it was made."""
        return len(self.gradients) < len(self.flats)

    @property
    def is_stale(self) -> bool:
        """Whether it holds, or waits for, full parameters of a shard that was written to since."""
        if self._life.state is ParameterState.SHARDED:
            return False
        return any(flat.changed for flat in self.flats)

    def start_gather(self) -> None:
        """Give the full parameters memory and start their all-gather.

        Raises:
            IllegalTransition: one is in flight, or they are there.
        """
        self._life.move("gather")
        for flat in self.flats:
            flat.start_gather()

    def finish_gather(self) -> None:
        """Wait for the all-gather and put the parameters into their modules.

        Raises:
            IllegalTransition: none is in flight.
        """
        self._life.move("arrive")
        for flat in self.flats:
            flat.finish_gather()
        for attributes, attribute, leaf, _ in self._places:
            attributes[attribute] = leaf

    def release(self) -> None:
        """Take the parameters out of their modules and free them.

        Raises:
            IllegalTransition: they are not there, or still arriving.
        """
        self._life.move("release")
        self._withdraw()
        for flat in self.flats:
            flat.free()

    def _withdraw(self) -> None:
        for attributes, attribute, _, stand_in in self._places:
            attributes[attribute] = stand_in
