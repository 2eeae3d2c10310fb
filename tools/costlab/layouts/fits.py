"""`tools/bench fits`: whether a layout fits in a card's memory, and what to change if not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from costlab.layouts import memory
from costlab.layouts.model import LayoutError, Model, Plan, check, layers_of_stages, refuse
from costlab.layouts.model_config import PROGRAMS, layout_options, parse_measured, read_layout
from costlab.layouts.stack_memory import GIB, STATE, Estimate, estimate, usable_bytes, worst_rank
from costlab.record.options import write_json

DEEPEST, SHOWN = 3, 5  # changes in a row that are tried; layouts that are listed


def moves(model: Model, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield changes that save memory on as many ranks, in the order of their price."""
    yield {"attention": "fused"}
    yield {"zero": max(plan.zero, 1)}
    yield {"sequence_parallel": plan.tensor > 1}
    if plan.recompute == "none" and plan.attention == "unfused":
        yield {"recompute": "selective"}
    if plan.micro_batch % 2 == 0:
        yield {"micro_batch": plan.micro_batch // 2}
    for axis in ("tensor", "stages", "context") if plan.data % 2 == 0 else ():
        if (axis, plan.tensor) != ("tensor", 8) and not (axis == "stages" and plan.layers):
            yield {axis: 2 * getattr(plan, axis), "data": plan.data // 2}
    if model.experts % (2 * plan.expert) == 0 < model.experts:
        yield {"expert": 2 * plan.expert}
    if 1 <= plan.zero < 3 and plan.stages == 1:
        yield {"zero": plan.zero + 1}
    yield {"recompute": "full"}


def change(model: Model, plan: Plan) -> Iterator[Plan]:
    """Yield the plans that one possible change makes of a plan."""
    for settings in moves(model, plan):
        try:
            changed = plan.changed(**settings)
            check(model, changed)
        except LayoutError:
            continue
        if changed != plan:
            yield changed


def describe(changed: Plan, plan: Plan) -> str:
    """Return the options that make one plan of another, as they are typed."""
    words = []
    for field in fields(Plan):
        value = getattr(changed, field.name)
        if value != getattr(plan, field.name) and field.name != "data":
            words.append(f"--{field.name.replace('_', '-')} {'' if value is True else value}")
    return " ".join(" ".join(words).split())


Judge = Callable[[Plan], Estimate]


def nearest(model: Model, plan: Plan, judge: Judge, room: float) -> list[Plan]:
    """Return the plans that fit after the fewest changes, cheapest changes first."""
    front, seen = [plan], {plan}
    for _ in range(DEEPEST):
        reached = [changed for start in front for changed in change(model, start)]
        front = [changed for changed in dict.fromkeys(reached) if changed not in seen]
        seen.update(front)
        if fitting := [plan for plan in front if judge(plan).verdict(room) == "fits"]:
            return fitting[:SHOWN]
    return []


@click.command("fits")
@click.option("--program", required=True, type=click.Choice(list(PROGRAMS)),
              help="What trains: it decides the bytes of a parameter.")  # fmt: skip
@layout_options("gib", "fits")
def command(card: str, measured: tuple[str, ...], output_format: str, **named: Any) -> int:
    """Say whether a layout fits in a card's memory.

    Counts each rank's bytes by kind, and names what to change. Exit status 1 unless the verdict is
    "fits".
    """
    try:
        model, plan = read_layout(named)
        own_runs = [
            (worst_rank(*read_layout(own)), gib * GIB)
            for own, gib in parse_measured(measured, "gib", named)
        ]
        for own_rank, size in own_runs:
            state = sum(own_rank[kind] for kind in STATE) / GIB
            refuse((size < state * GIB, f"--measured {size / GIB:g}: weights, gradients and "
                    f"optimizer alone take {state:.3g} GiB of that layout"))  # fmt: skip
    except LayoutError as fault:
        raise click.UsageError(str(fault)) from None
    room, stages = usable_bytes(card), memory.all_ranks(model, plan)

    def judge(plan: Plan) -> Estimate:
        return estimate(worst_rank(model, plan), own_runs)

    answer = judge(plan)
    verdict = answer.verdict(room)
    layouts = [] if verdict == "fits" else nearest(model, plan, judge, room)

    def compare(changed: Plan) -> dict[str, Any]:
        to = judge(changed)
        return {"change": describe(changed, plan), "counted": to.counted, "likely": to.likely,
                "high": to.high, "verdict": to.verdict(room)}  # fmt: skip

    report = {
        "verdict": verdict, "card": card, "room": room, "counted": answer.counted,
        "likely": answer.likely, "low": answer.low, "high": answer.high, "own_runs": len(own_runs),
        "worst_stage": memory.worst(stages), "ranks": plan.ranks, "data": plan.data,
        "stages": [
            {"layers": sum(map(len, chunks)), "bytes": counted}
            for chunks, counted in zip(layers_of_stages(model, plan), stages, strict=True)
        ],
        "next": [compare(changed) for changed in change(model, plan)],
        "nearest": [compare(changed) for changed in layouts],
    }  # fmt: skip
    if output_format == "json":
        write_json(report)
    else:
        _show(report)
    return int(verdict != "fits")


def _show(report: Mapping[str, Any]) -> None:
    from costlab.record.words import console, tabulate

    say = console().print
    room, colour = report["room"] / GIB, {"fits": "green", "does not fit": "red"}
    verdict = report["verdict"]
    say(f"[bold {colour.get(verdict, 'yellow')}]{verdict}[/]: {report['card']} has {room:.1f} GiB; "
        f"the fullest rank needs {report['likely'] / GIB:.1f} GiB, between "
        f"{report['low'] / GIB:.1f} and {report['high'] / GIB:.1f}")  # fmt: skip
    source = "own runs" if report["own_runs"] else "published runs"
    say(f"counted {report['counted'] / GIB:.1f} GiB; the rest is what {source} had in addition: "
        "the driver, buffers of collectives, fragments\n")  # fmt: skip
    rows = [
        (f"{index}{' *' if index == report['worst_stage'] else ''}", str(stage["layers"]),
         *(f"{stage['bytes'][kind] / GIB:.2f}" for kind in memory.KINDS),
         f"{sum(stage['bytes'].values()) / GIB:.2f}")
        for index, stage in enumerate(report["stages"])
    ]  # fmt: skip
    tabulate(("stage", "layers", *memory.KINDS, "GiB"), ">" * (len(memory.KINDS) + 3), rows)
    _show_changes("\none change", report["next"])
    if verdict != "fits":
        if report["nearest"]:
            _show_changes("\nnearest layouts that fit", report["nearest"])
        else:
            say(f"\nno {DEEPEST} changes make it fit: take more cards, or shorter sequences")


def _show_changes(title: str, changes: Sequence[Mapping[str, Any]]) -> None:
    from costlab.record.words import console, tabulate

    if not changes:
        return
    console().print(title)
    rows = [
        (row["change"], f"{row['counted'] / GIB:.1f}", f"{row['high'] / GIB:.1f}",
         row["verdict"])
        for row in changes
    ]  # fmt: skip
    tabulate(("change", "counted", "at most", ""), "<>><", rows)
