"""Is a schedule whole: every compute once, in an order in which its inputs are there?"""

from __future__ import annotations

from collections.abc import Sequence

from shardlab.pipeline.action import (
    Action,
    Backward,
    Compute,
    Forward,
    Message,
    Receive,
    ScheduleError,
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


def check_whole(schedule: Sequence[Sequence[Action]]) -> None:
    """Refuse a schedule in which some stage would compute what it does not have.

    Each stage must run every micro-batch once through every chunk, forward before backward (or
    nothing backward at all), its weights' gradients after that where a schedule has them apart,
    receive what comes from another stage before it computes on it, and
    send each result that another stage needs, after it was computed.

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
                for first in _first(stage, part, stages, chunks, place):
                    if first not in done:
                        raise ScheduleError(f"{place}: {name(first)} must come before {name(part)}")
                done.add(part)
        for kind in sorted(kinds, key=(Forward, Backward, Weight).index):
            for microbatch in range(microbatches_in(schedule)):
                for chunk in range(chunks):
                    if kind(microbatch, chunk) not in done:
                        missing = name(kind(microbatch, chunk))
                        raise ScheduleError(f"stage {stage} never runs {missing}")


def _first(
    stage: int, part: Compute | Message, stages: int, chunks: int, place: str
) -> list[Compute | Message]:
    """Return what the same stage must have done before this part."""
    if not isinstance(part, Forward | Backward | Weight):
        if partner(stage, part, stages, chunks) is None:
            raise ScheduleError(f"{place}: {name(part)} has no other stage at its other end")
        return [] if isinstance(part, Receive) else [part.compute]
    before = follows(part)
    first: list[Compute | Message] = [before] if before else []
    origin = needs(stage, part, stages, chunks)
    if origin is not None:
        first.append(origin[1] if origin[0] == stage else Receive(part))
    return first
