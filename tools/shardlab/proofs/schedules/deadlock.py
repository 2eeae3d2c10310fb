"""Whether a schedule is complete (every compute once, after its inputs), and whether it ends.

It is simulated on an abstract machine, without processes or a clock.
Every stage runs its actions in order. Between two stages there is a queue in each direction: the
k-th send from one to the other matches the k-th receive. There are two kinds of machine:

- rendezvous: a send ends when its receive is posted (NCCL, whose calls run on one stream in the
  order of their launch; MPI's `Ssend`; gloo when every send is waited for at once).
- buffered: a send ends at once (gloo when sends are left pending; MPI's `Bsend`).

A schedule that ends under rendezvous ends everywhere: here an exchange blocks until all its parts
are through, where the real run goes on and waits only for what a compute needs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shardlab.pipeline.action import (
    Action,
    Backward,
    Compute,
    Forward,
    Message,
    Receive,
    ScheduleError,
    Send,
    Weight,
    chunks_in,
    computes,
    follows,
    microbatches_in,
    name,
    needs,
    partner,
    parts,
)


def check_complete(schedule: Sequence[Sequence[Action]]) -> None:
    """Refuse a schedule that isn't complete.

    Each stage must run every micro-batch once through every chunk, forward before backward (or no
    backward at all), and `Weight` after backward if the schedule has it. It must receive an input
    from another stage before it computes with it, and send each result that another stage needs
    after computing it.

    Raises:
        ScheduleError: names the stage and the action.
    """
    stages, chunks = len(schedule), chunks_in(schedule)
    kinds = {Forward} | {type(a) for actions in schedule for a in computes(actions)}
    for stage, actions in enumerate(schedule):
        done: set[Compute | Message] = set()
        for position, action in enumerate(actions):
            for part in parts(action):
                place = f"stage {stage}, action {position}, {name(action)}"
                if part in done:
                    raise ScheduleError(f"{place}: {name(part)} was done before")
                for required in _prerequisites(stage, part, stages, chunks, place):
                    if required not in done:
                        raise ScheduleError(
                            f"{place}: {name(required)} must come before {name(part)}"
                        )
                done.add(part)
        for kind in sorted(kinds, key=(Forward, Backward, Weight).index):
            for microbatch in range(microbatches_in(schedule)):
                for chunk in range(chunks):
                    if kind(microbatch, chunk) not in done:
                        missing = name(kind(microbatch, chunk))
                        raise ScheduleError(f"stage {stage} never runs {missing}")


def _prerequisites(
    stage: int, part: Compute | Message, stages: int, chunks: int, place: str
) -> list[Compute | Message]:
    """Return the parts that the same stage must run before this one."""
    if not isinstance(part, Forward | Backward | Weight):
        if partner(stage, part, stages, chunks) is None:
            raise ScheduleError(f"{place}: {name(part)} has no other stage at its other end")
        return [] if isinstance(part, Receive) else [part.compute]
    previous = follows(part)
    required: list[Compute | Message] = [previous] if previous else []
    origin = needs(stage, part, stages, chunks)
    if origin is not None:
        required.append(origin[1] if origin[0] == stage else Receive(part))
    return required


Sends = Literal["rendezvous", "buffered"]


class DeadlockError(ScheduleError):
    """Raised when a schedule stops before its end; says which stage waits for which message."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One stage that cannot go on.

    Attributes:
        stage: the stage.
        position: the index of its current action.
        action: its current action.
        unmet: its sends and receives without a partner, each with the stage that it waits for.
    """

    stage: int
    position: int
    action: Action
    unmet: tuple[tuple[Message, int], ...]

    def __str__(self) -> str:
        """Say it in words."""
        words = [
            f"{name(message)} ({'from' if isinstance(message, Receive) else 'to'} stage {peer})"
            for message, peer in self.unmet
        ]
        return f"stage {self.stage} waits at action {self.position} with {', '.join(words)}"


def check(schedule: Sequence[Sequence[Action]], *, sends: Sends = "rendezvous") -> None:
    """Refuse a schedule that is incomplete, or does not end on a machine of the given kind.

    Raises:
        ScheduleError: a compute is missing, repeated or before its inputs; a message has no
            partner or is out of order.
        DeadlockError: stages wait for each other.
    """
    check_complete(schedule)
    waits = deadlock(schedule, sends=sends)
    if waits:
        raise DeadlockError(
            f"deadlock where sends are {sends}:\n  "
            + "\n  ".join(map(str, waits))
            + "\nstart what crosses as one Exchange, or receive before the send that blocks"
        )


def deadlock(schedule: Sequence[Sequence[Action]], *, sends: Sends = "rendezvous") -> list[Wait]:
    """Simulate a schedule; return the stages that wait for ever, none if it ends.

    Raises:
        ScheduleError: a receive matches another send than its own, or a message is never received.
    """
    machine = _Machine(schedule, buffered=sends == "buffered")
    moved = True
    while moved:
        moved = False
        for stage in range(len(schedule)):
            moved |= machine.advance(stage)
    waits = machine.waits()
    if not waits:
        machine.check_empty()
    return waits


class _Machine:
    """All stages' positions, what each still waits for, and the queues between them."""

    def __init__(self, schedule: Sequence[Sequence[Action]], *, buffered: bool) -> None:
        self._schedule = schedule
        self._buffered = buffered
        self._chunks = chunks_in(schedule)
        self._at = [0] * len(schedule)
        self._unmet: list[dict[Message, int] | None] = [None] * len(schedule)
        # From one stage to another, in order: what it has sent, what the other is to receive.
        self._sent: dict[tuple[int, int], deque[Send]] = defaultdict(deque)
        self._wanted: dict[tuple[int, int], deque[Receive]] = defaultdict(deque)

    def advance(self, stage: int) -> bool:
        """Run a stage as far as it can go; return whether it did anything."""
        moved = False
        while self._at[stage] < len(self._schedule[stage]):
            if self._unmet[stage] is None:
                self._post(stage, self._schedule[stage][self._at[stage]])
                moved = True
            if self._unmet[stage]:
                return moved
            self._unmet[stage] = None
            self._at[stage] += 1
            moved = True
        return moved

    def waits(self) -> list[Wait]:
        """Return the stages that have not reached their end."""
        return [
            Wait(stage, at, self._schedule[stage][at], tuple((self._unmet[stage] or {}).items()))
            for stage, at in enumerate(self._at)
            if at < len(self._schedule[stage])
        ]

    def check_empty(self) -> None:
        """Refuse a message that no stage received."""
        for (source, to), sent in self._sent.items():
            if sent:
                what = name(sent[0])
                raise ScheduleError(f"stage {source} sends {what}, stage {to} never receives it")

    def _post(self, stage: int, action: Action) -> None:
        unmet: dict[Message, int] = {}
        self._unmet[stage] = unmet
        for part in parts(action):
            if isinstance(part, Forward | Backward | Weight):
                continue
            end = partner(stage, part, len(self._schedule), self._chunks)
            if end is None:
                raise ScheduleError(f"stage {stage}: {name(part)} has no stage at its other end")
            if isinstance(part, Receive):
                self._wanted[end[0], stage].append(part)
                unmet[part] = end[0]
                self._match(end[0], stage)
            else:
                self._sent[stage, end[0]].append(part)
                if not self._buffered:
                    unmet[part] = end[0]
                self._match(stage, end[0])

    def _match(self, source: int, to: int) -> None:
        sent, wanted = self._sent[source, to], self._wanted[source, to]
        while sent and wanted:
            send, receive = sent.popleft(), wanted.popleft()
            if partner(to, receive, len(self._schedule), self._chunks) != (source, send):
                raise ScheduleError(
                    f"stage {to} expects {name(receive)} from stage {source}, which sends "
                    f"{name(send)} first: receive in the order of the sends"
                )
            for stage, part in ((source, send), (to, receive)):
                (self._unmet[stage] or {}).pop(part, None)
