"""The state machine of a unit: what may follow what, and why nothing else may.

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

Everything else raises `IllegalTransition`. The machine knows nothing of tensors: `unit.py` and
`flat/gradient.py` move it first and touch storage after, so a wrong order is named, not computed.

In PyTorch the same is spread over `HandleTrainingState`, `_prefetched`, `_is_unsharded`-like checks
on storage sizes (fsdp/_flat_param.py), and `ShardedState` with `TrainingState` in FSDP2
(fsdp/_fully_shard/_fsdp_param_group.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar


class ParameterState(Enum):
    """Where a unit's full parameters are."""

    SHARDED = auto()
    GATHERING = auto()
    UNSHARDED = auto()


class GradientState(Enum):
    """Where a flat parameter's gradient over the whole axis is."""

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


class IllegalTransition(RuntimeError):  # noqa: N818  what it is called wherever machines are
    """An event that has no meaning in the present state."""


@dataclass(eq=False, slots=True)
class LifeCycle(Generic[State]):
    """One machine: a state, and the table that says where an event leads.

    Args:
        name: whose machine it is, for errors.
        table: (state, event) → next state; what is not in it is illegal.
        state: where it begins.
    """

    _name: str
    _table: Table[State]
    state: State

    def move(self, event: str) -> None:
        """Go where `event` leads.

        Raises:
            IllegalTransition: nowhere; says why, and what is possible.
        """
        after = self._table.get((self.state, event))
        if after is None:
            raise IllegalTransition(self._explain(event))
        self.state = after

    def _explain(self, event: str) -> str:
        possible = [known for state, known in self._table if state is self.state]
        why = WHY.get((self.state, event), "it has no meaning there")
        return (
            f"{self._name} is {self.state.name} and can't {event}: {why}; "
            f"possible now: {', '.join(possible)}"
        )
