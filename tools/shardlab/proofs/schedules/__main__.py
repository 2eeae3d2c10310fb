"""`python -m shardlab.proofs.schedules`: draw one, count its messages, check that it ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from shardlab.pipeline.action import Exchange, Schedule, ScheduleError, name
from shardlab.pipeline.schedule import NAMES, by_name
from shardlab.proofs.schedules.deadlock import check
from shardlab.proofs.schedules.timeline import (
    bubble,
    draw_mermaid,
    draw_text,
    peak_live,
    simulate,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a schedule in the requested format; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        schedule = by_name(options.schedule, options.stages, options.microbatches, options.chunks)
        timeline = simulate(
            schedule, forward=options.forward, backward=options.backward, weight=options.weight
        )
        check(schedule)
    except ScheduleError as error:
        print(error, file=sys.stderr)
        return 2
    if options.format == "actions":
        for stage, actions in enumerate(schedule):
            print(f"stage {stage}:", " ".join(map(name, actions)))
    elif options.format == "mermaid":
        title = f"{options.schedule}, {options.stages} stages, {options.microbatches} micro-batches"
        print(draw_mermaid(timeline, title))
    else:
        print(draw_text(timeline))
        print(f"\nbubble {bubble(timeline):.1%} of the time")
        print("live micro-batches, at most, by stage:", *map(peak_live, schedule))
        print("messages sent, by stage:", *_count_sends(schedule))
        print("ends, even where every send waits for its receive")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shardlab.proofs.schedules", description=__doc__
    )
    parser.add_argument("--schedule", choices=NAMES, default="1f1b")
    parser.add_argument("--stages", type=int, default=4, help="p")
    parser.add_argument("--microbatches", type=int, default=8, help="m")
    parser.add_argument(
        "--chunks", type=int, default=None, help="v, for interleaved (2) and forward-only (1)"
    )
    parser.add_argument("--forward", type=int, default=1, help="what a forward costs")
    parser.add_argument("--backward", type=int, default=1, help="what a backward costs")
    parser.add_argument(
        "--weight", type=int, default=1, help="what the weights' part of it costs, for zb-h1"
    )
    parser.add_argument("--format", choices=["picture", "actions", "mermaid"], default="picture")
    return parser


def _count_sends(schedule: Schedule) -> list[int]:
    return [sum(len(a.sends) for a in actions if isinstance(a, Exchange)) for actions in schedule]


if __name__ == "__main__":
    sys.exit(main())
