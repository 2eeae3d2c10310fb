"""One step of FSDP on a clock: when units are gathered, computed with, freed and reduced.

All units are alike, and the root has no parameters of its own. One communicator runs its
collectives in the order in which they are issued, next to one computing stream. The CPU is always
ahead of both, so it waits only where FSDP makes it wait. Copies take no time.

What keeps gathers from being issued too early differs:

    limiter   FSDP1's `limit_all_gathers`: if `limit` frees are queued, the CPU waits for the oldest
              (torch/distributed/fsdp/_limiter_utils.py); the queue outlives the step
    copies    FSDP2: a gather of forward waits for the copy-out of the unit before the last, one of
              backward for that of the last (`wait_for_unshard`, _fsdp_param_group.py)
    computing shardlab: a gather is issued on the computing stream, after all that was queued there
    nothing   FSDP1 with `limit_all_gathers=False`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

GUARDS = ("limiter", "copies", "computing", "nothing")
PREFETCHES = ("pre", "post", "none")


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """A step of FSDP.

    Attributes:
        units: of the model.
        collective, forward, backward: how long each takes, of one unit.
        guard: what keeps gathers from being issued too early; one of `GUARDS`.
        limit: of the limiter; PyTorch's is 2.
        forward_prefetch: whether the next unit's gather is issued before a unit's forward.
        backward_prefetch: BACKWARD_PRE, BACKWARD_POST or None; FSDP2 always does the first.
        reshards: whether units are freed after forward.
    """

    units: int
    collective: float = 2
    forward: float = 2
    backward: float = 4
    guard: str = "limiter"
    limit: int = 2
    forward_prefetch: bool = False
    backward_prefetch: str = "pre"
    reshards: bool = True


class UnitSpan(NamedTuple):
    """A unit's time on a stream or in memory.

    Attributes:
        kind: "gather", "reduce", "forward" or "backward"; in memory "parameters", from the issue of
            the gather to the free, or "gradient", from the start of backward to the reduction's
            end.
        unit: the unit's number in forward, from 1.
        start, end: on the clock.
    """

    kind: str
    unit: int
    start: float
    end: float


@dataclass
class FSDPStep:
    """What happened in a step, in the order of issue.

    Attributes:
        communication: gathers and reductions.
        computing: forwards and backwards.
        memory: whole parameters and gradients of units.
        issued: what the CPU does, as pairs of a kind and a unit: the kinds of `UnitSpan`, "free",
            and "wait" for the computation before that unit's free.
    """

    communication: list[UnitSpan] = field(default_factory=list)
    computing: list[UnitSpan] = field(default_factory=list)
    memory: list[UnitSpan] = field(default_factory=list)
    issued: list[tuple[str, int]] = field(default_factory=list)

    @property
    def end(self) -> float:
        """When the last reduction ends."""
        return max(span.end for span in (*self.communication, *self.computing))

    @property
    def exposed(self) -> float:
        """The time in which nothing computes, so that communication is not hidden."""
        return self.end - sum(span.end - span.start for span in self.computing)

    def peak(self, *kinds: str) -> int:
        """Return the most units whose parameters, gradients or both are whole at a moment."""
        spans = [span for span in self.memory if span.kind in kinds and span.end > span.start]
        starts = [span.start for span in spans]
        return max(sum(span.start <= at < span.end for span in spans) for at in starts)


def simulate_step(settings: StepSettings) -> FSDPStep:
    """Simulate one of the steps that follow the first ones, which all begin in the same way.

    The limiter has as many frees of the step before as it leaves to the next.
    """
    queued: list[tuple[int, float]] = []
    while True:
        clock = _Clock(settings, queued)
        clock.run()
        left = [(unit, 0.0) for unit, _ in clock.frees]
        if left == queued:
            return clock.step
        queued = left


class _Clock:
    """The CPU's program of a step, run against a clock."""

    def __init__(self, settings: StepSettings, frees: Iterable[tuple[int, float]]) -> None:
        self.settings, self.step = settings, FSDPStep()
        self.frees = deque(frees)  # the limiter's queue: units and when they are free
        self._cpu = self._copied = self._wire = self._computing = self._reduced = 0.0
        self._whole: dict[int, tuple[float, float]] = {}  # unit → issue and end of its gather
        self._asked: set[int] = set()  # units that are unsharded for their next use
        self._begun: dict[int, float] = {}  # units whose backward began, and when

    def run(self) -> None:
        order = range(1, self.settings.units + 1)
        for unit in order:
            self._forward(unit, last=unit == order[-1])
        for unit in reversed(order):
            self._backward(unit)

    def _forward(self, unit: int, *, last: bool) -> None:
        s, previous_copy = self.settings, self._computing_start("forward", unit - 1)
        self._unshard(unit)
        self._copied = previous_copy
        if s.forward_prefetch and not last:
            self._unshard(unit + 1)
        self._compute("forward", unit, s.forward)
        if last:  # FSDP2 drops its reference to the last buffer
            self._copied = self._computing_start("forward", unit)
        self._asked.discard(unit)
        if s.reshards:
            self._free(unit)

    def _backward(self, unit: int) -> None:
        s = self.settings
        self._unshard(unit)
        self._copied = max(self._computing, self._whole[unit][1])
        if s.backward_prefetch == "pre" and unit > 1:
            self._unshard(unit - 1)
        start = self._compute("backward", unit, s.backward)
        # FSDP1's views of a unit that was prefetched in forward are older than the forward of the
        # unit before, so autograd finishes them after that unit's backward.
        late = s.forward_prefetch and s.guard in ("limiter", "nothing")
        self._begun[unit] = start
        for finished in [u for u in self._begun if not late or u > unit or unit == 1]:
            self._finish(finished, self._begun.pop(finished))

    def _finish(self, unit: int, start: float) -> None:
        s = self.settings
        self._free(unit)
        if s.backward_prefetch == "post" and unit > 1:
            self._unshard(unit - 1)
        if s.guard in ("copies", "computing"):  # one gradient waits to be reduced
            self._computing = max(self._computing, self._reduced)
        self._reduced = self._communicate("reduce", unit, self.step.computing[-1].end)
        self.step.memory.append(UnitSpan("gradient", unit, start, self._reduced))

    def _unshard(self, unit: int) -> None:
        if unit in self._asked:
            return
        self._asked.add(unit)
        s = self.settings
        if s.guard == "limiter" and len(self.frees) >= s.limit:  # even for a unit that is whole
            freed, end = self.frees.popleft()
            self._cpu = max(self._cpu, end)
            self.step.issued.append(("wait", freed))
        if unit in self._whole:
            return
        issued = {"copies": self._copied, "computing": self._computing}.get(s.guard, self._cpu)
        self._whole[unit] = (issued, self._communicate("gather", unit, issued))

    def _communicate(self, kind: str, unit: int, ready: float) -> float:
        start = max(ready, self._wire)
        self._wire = start + self.settings.collective
        self.step.communication.append(UnitSpan(kind, unit, start, self._wire))
        self.step.issued.append((kind, unit))
        return self._wire

    def _compute(self, kind: str, unit: int, duration: float) -> float:
        start = max(self._computing, self._whole[unit][1])
        self._computing = start + duration
        self.step.computing.append(UnitSpan(kind, unit, start, self._computing))
        self.step.issued.append((kind, unit))
        return start

    def _computing_start(self, kind: str, unit: int) -> float:
        starts = [span.start for span in self.step.computing if span[:2] == (kind, unit)]
        return starts[0] if starts else 0.0

    def _free(self, unit: int) -> None:
        issued, _ = self._whole.pop(unit)
        end = self.step.computing[-1].end
        self.step.memory.append(UnitSpan("parameters", unit, issued, end))
        self.step.issued.append(("free", unit))
        if self.settings.guard == "limiter":
            self.frees.append((unit, end))
