"""Whether a schedule is complete: every compute once, after its inputs."""

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
