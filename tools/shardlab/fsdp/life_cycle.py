"""The state machines of a unit's parameters and of its gradients, with errors for wrong events.

A unit's full parameters:

    state      event    next       what happens
    SHARDED    gather   GATHERING  full storage allocated, all-gather started
    GATHERING  arrive   UNSHARDED  all-gather waited for, parameters put into their modules
    UNSHARDED  release  SHARDED    parameters taken out of their modules, full storage freed

A flat parameter's gradient over the whole axis:

    state      event    next       what happens
    EMPTY      fill     FILLING    buffer allocated, first gradient of this backward copied in
    HELD       fill     FILLING    the gradient adds to what a backward under `no_sync` left
    FILLING    hold     HELD       end of a backward under `no_sync`: kept, whole, for the next one
    FILLING    reduce   REDUCING   reduce-scatter started
    HELD       reduce   REDUCING   the same, where the last backward did not use the unit
    REDUCING   deposit  EMPTY      reduce-scatter waited for, added to the shard's `.grad`
    FILLING    drop     EMPTY      a backward failed or its gradient is not wanted: forgotten
    HELD       drop     EMPTY      the same

Any other event raises `IllegalTransition`. The machine doesn't use tensors: `unit.py` and
`flat_gradient.py` change the state first and the storage afterwards, so a wrong order raises an
error before it can give a wrong result.

PyTorch has the same logic in `HandleTrainingState`, `_prefetched` and checks of storage sizes
(fsdp/_flat_param.py); FSDP2 in `ShardedState` and `TrainingState`
(fsdp/_fully_shard/_fsdp_param_group.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar


class ParameterState(Enum):
    """The state of a unit's full parameters."""

    SHARDED = auto()
    GATHERING = auto()
    UNSHARDED = auto()


class GradientState(Enum):
    """The state of a flat parameter's gradient over the whole axis."""

    EMPTY = auto()
    FILLING = auto()
    HELD = auto()
    REDUCING = auto()


State = TypeVar("State", bound=Enum)
Table = Mapping[tuple[State, str], State]

_P, _G = ParameterState, GradientState
PARAMETERS: Table[ParameterState] = {
    (_P.SHARDED, "gather"): _P.GATHERING,
    (_P.GATHERING, "arrive"): _P.UNSHARDED,
    (_P.UNSHARDED, "release"): _P.SHARDED,
}
GRADIENTS: Table[GradientState] = {
    (_G.EMPTY, "fill"): _G.FILLING,
    (_G.HELD, "fill"): _G.FILLING,
    (_G.FILLING, "hold"): _G.HELD,
    (_G.FILLING, "reduce"): _G.REDUCING,
    (_G.HELD, "reduce"): _G.REDUCING,
    (_G.REDUCING, "deposit"): _G.EMPTY,
    (_G.FILLING, "drop"): _G.EMPTY,
    (_G.HELD, "drop"): _G.EMPTY,
}

WHY: Mapping[tuple[Enum, str], str] = {
    (_P.GATHERING, "gather"): "an all-gather is in flight already; wait for that one",
    (_P.UNSHARDED, "gather"): "it holds its full parameters already; release them first if stale",
    (_P.SHARDED, "arrive"): "no all-gather was started, so there is nothing to wait for",
    (_P.UNSHARDED, "arrive"): "its all-gather was waited for before",
    (_P.SHARDED, "release"): "its full parameters were freed before",
    (_P.GATHERING, "release"): "the all-gather still writes there; wait for it, then release",
    (_G.REDUCING, "fill"): "the last gradient is still being reduced; deposit that one first",
    (_G.REDUCING, "reduce"): "its reduce-scatter is in flight already",
    (_G.EMPTY, "reduce"): "there is no gradient to reduce",
    (_G.EMPTY, "deposit"): "no reduce-scatter was started",
}


class IllegalTransition(RuntimeError):  # noqa: N818  (the usual name for state machines)
    """Raised for an event that isn't allowed in the current state."""


@dataclass(eq=False, slots=True)
class LifeCycle(Generic[State]):
    """A state machine: a state, and the table of its transitions.

    Args:
        name: the name of the unit or gradient, for errors.
        table: (state, event) → next state; other events are illegal.
        state: the initial state.
    """

    _name: str
    _table: Table[State]
    state: State

    def move(self, event: str) -> None:
        """Change to the next state for `event`.

        Raises:
            IllegalTransition: the event isn't allowed now; says why, and which events are.
        """
        next_state = self._table.get((self.state, event))
        if next_state is None:
            raise IllegalTransition(self._explain(event))
        self.state = next_state

    def _explain(self, event: str) -> str:
        possible_events = [known_event for state, known_event in self._table if state is self.state]
        why = WHY.get((self.state, event), "it has no meaning there")
        return (
            f"{self._name} is {self.state.name} and can't {event}: {why}; "
            f"possible now: {', '.join(possible_events)}"
        )
