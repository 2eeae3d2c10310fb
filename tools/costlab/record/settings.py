"""What a run is asked to measure, and how much time it has."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One run's settings, as the command line gives them; sent to every rank.

    Args:
        profile: "quick" (the whole lab within five minutes on two cores) or "full".
        ranks: how many ranks measure what any number of ranks can.
        sizes: bytes of a collective's payload, ascending.
        hidden: hidden sizes of the tensor-parallel step, ascending.
        device: "cpu" or "cuda" ("auto" is settled before).
        seed: of every random order and input.
        minutes: the run's budget; 0 for none.
        seconds: a launch's share of the budget; 0 for none, and in the settings of a run.
        launch: which of a section's launches this is, from 0; a run's own is 0.
        sections: those that were asked for, in order.
    """

    profile: str = "quick"
    ranks: int = 2
    sizes: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    device: str = "cpu"
    seed: int = 35
    minutes: float = 0.0
    seconds: float = 0.0
    launch: int = 0
    sections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Budget:
    """Time that is shared out over parts, one after another: what a part leaves, the next have.

    Args:
        until: the moment of this process's `time.perf_counter()` at which it is spent.
    """

    until: float = math.inf

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """Return a budget that begins now; 0 seconds are no limit."""
        return cls(time.perf_counter() + seconds if seconds else math.inf)

    @property
    def remaining(self) -> float:
        """Seconds that are left; none below 0."""
        return max(0.0, self.until - time.perf_counter())

    def share(self, fraction: float) -> Budget:
        """Return the next part's budget, a fraction of the time that is left."""
        if math.isinf(self.until):
            return self
        return Budget(time.perf_counter() + self.remaining * fraction)
