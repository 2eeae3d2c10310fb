"""A unit: a module whose parameters are gathered, released and reduced together.

It has the state machine of its full parameters (`life_cycle.py`) and applies it to its flat
parameters: usually one; more if parameters differ in dtype or some are frozen.

While a unit is sharded, a placeholder is in the place of each parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from torch import nn

from shardlab.fsdp.flat_gradient import FlatGradient
from shardlab.fsdp.flat_parameter import FlatParameter
from shardlab.fsdp.life_cycle import PARAMETERS, LifeCycle, ParameterState


class ShardedAttributeError(AttributeError):
    """Raised when a parameter is used while its unit is sharded."""


class ShardedParameter:
    """A placeholder with a name and a shape; any other use raises an error that says what to do.

    Reading freed storage would crash the process. torch calls an argument's `__torch_function__`
    before it reads data, so the error is raised by the call that uses the parameter.
    """

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self.name = name
        self.shape = tuple(shape)

    def __repr__(self) -> str:
        return f"<{self.name} {self.shape}, sharded>"

    def __getattr__(self, attribute: str) -> NoReturn:
        raise ShardedAttributeError(_advise(self.name, f"its .{attribute} was asked for"))

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        values = [*args, *(kwargs or {}).values()]
        flat = [x for value in values for x in (value if isinstance(value, list) else [value])]
        names = ", ".join(x.name for x in flat if isinstance(x, cls)) or "a parameter"
        raise RuntimeError(_advise(names, f"{getattr(function, '__name__', function)} uses it"))


def _advise(name: str, what: str) -> str:
    return (
        f"{name} is sharded, and {what}: its unit holds full parameters only inside its own "
        "forward and backward; call the unit itself, or work inside `with model.gathered():`"
    )


class ParameterSlot(NamedTuple):
    """An attribute of a module that is a parameter.

    Attributes:
        module: the module.
        attribute: the attribute's name.
        name: the parameter's name in the whole model.
        parameter: the parameter; a tied parameter is in several slots.
    """

    module: nn.Module
    attribute: str
    name: str
    parameter: nn.Parameter


class Unit:
    """One module's parameters, without those of units inside it.

    Args:
        name: the module's name in the model.
        module: the module, before whose forward the unit is gathered.
        flats: its flat parameters, perhaps none.
        gradients: the gradients of the flat parameters that train.
        slots: the attributes of the modules that are these parameters.
    """

    def __init__(
        self, name: str, module: nn.Module, flats: Sequence[FlatParameter],
        gradients: Sequence[FlatGradient], slots: Sequence[ParameterSlot],
    ) -> None:  # fmt: skip
        self.name = name
        self.module = module
        self.flats = tuple(flats)
        self.gradients = tuple(gradients)
        self._life = LifeCycle(f"unit {name}", PARAMETERS, ParameterState.SHARDED)
        self._places: list[tuple[dict[str, Any], str, nn.Parameter, ShardedParameter]] = []
        whole = {id(leaf) for flat in flats if flat.is_whole for leaf in flat.leaves}
        for slot in slots:
            # Python finds an attribute in __dict__ before the module's parameters and buffers.
            slot.module._parameters.pop(slot.attribute, None)
            attributes = slot.module.__dict__
            if id(slot.parameter) in whole:  # never sharded, so always in place
                attributes[slot.attribute] = slot.parameter
            else:
                stand_in = ShardedParameter(slot.name, slot.parameter.shape)
                self._places.append((attributes, slot.attribute, slot.parameter, stand_in))
        self._remove_parameters()

    @property
    def state(self) -> ParameterState:
        """The state of the full parameters."""
        return self._life.state

    @property
    def versions(self) -> tuple[int, ...]:
        """The shards' version counters, which change with an in-place write."""
        return tuple([flat.version for flat in self.flats])

    @property
    def holds_frozen(self) -> bool:
        """Whether some of its parameters were frozen at construction."""
        return len(self.gradients) < len(self.flats)

    @property
    def is_stale(self) -> bool:
        """Whether a shard was written to since the gather of the full parameters."""
        if self._life.state is ParameterState.SHARDED:
            return False
        return any(flat.changed for flat in self.flats)

    def start_gather(self) -> None:
        """Allocate the full parameters and start their all-gather.

        Raises:
            IllegalTransition: the unit is gathering or unsharded.
        """
        self._life.move("gather")
        for flat in self.flats:
            flat.start_gather()

    def finish_gather(self) -> None:
        """Wait for the all-gather and put the parameters into their modules.

        Raises:
            IllegalTransition: no all-gather was started.
        """
        self._life.move("arrive")
        for flat in self.flats:
            flat.finish_gather()
        for attributes, attribute, leaf, _ in self._places:
            attributes[attribute] = leaf

    def release(self) -> None:
        """Take the parameters out of their modules and free them.

        Raises:
            IllegalTransition: the unit is sharded, or still gathering.
        """
        self._life.move("release")
        self._remove_parameters()
        for flat in self.flats:
            flat.free()

    def _remove_parameters(self) -> None:
        for attributes, attribute, _, stand_in in self._places:
            attributes[attribute] = stand_in
