"""The figure of one step of FSDP: two streams, and below them what is whole in memory."""

from pathlib import Path
from typing import Any

from costlab.layouts.memory import layer_parameters
from costlab.layouts.model import Plan
from shardlab.proofs.formulas.fsdp import fully_sharded
from shardlab.proofs.schedules.fsdp_step import (
    PREFETCHES,
    FSDPStep,
    StepSettings,
    UnitSpan,
    simulate_step,
)
from sitelab.figures import embed, memory
from sitelab.figures.embed import Figure, make_control, render_template

# A guard of `StepSettings`, and its limit.
GUARDS = {
    "fsdp1": ("limiter", 2),
    "fsdp2": ("copies", 2),
    "shardlab": ("computing", 2),
    "limiter-1": ("limiter", 1),
    "limiter-3": ("limiter", 3),
    "nothing": ("nothing", 2),
}
UNITS = range(2, 9)
COLLECTIVES = (1, 2, 3, 4, 6)
RANKS = (2, 4, 8, 16, 64, 512)
MODELS = ("tutor", "Llama 3 8B", "Llama 3 70B", "Llama 3.1 405B")
INITIAL = {
    "guard": "fsdp1", "units": 4, "collective": 2, "forward_prefetch": False,
    "backward_prefetch": "pre", "reshards": True, "unit": "Llama 3 8B", "ranks": 8,
}  # fmt: skip


def block_bytes(name: str) -> int:
    """Return the bytes of the parameters of one block of a model, as FSDP gathers them."""
    model, plan = memory.read_plan(memory.load_presets()[name])
    return plan.activation * sum(layer_parameters(model, Plan(), 0))


def simulate_figure(at: dict[str, Any]) -> FSDPStep:
    """Return the step that the figure shows for its controls' values."""
    guard, limit = GUARDS[at["guard"]]
    shared = ("units", "collective", "forward_prefetch", "backward_prefetch", "reshards")
    return simulate_step(StepSettings(guard=guard, limit=limit, **{key: at[key] for key in shared}))


def format_answers(at: dict[str, Any], words: dict[str, str]) -> dict[str, str]:
    """Return the numbers that the figure shows."""
    step, size = simulate_figure(at), block_bytes(at["unit"])
    sizes = [0] + [size] * at["units"]  # the root has no parameters of its own

    def format_peak(*kinds: str) -> str:
        count = step.peak(*kinds)
        text = words["peak-one" if count == 1 else "peak"]
        return text.format(count=count, size=embed.format_bytes(count * size))

    cut = {"ranks": at["ranks"], "reshards_after_forward": at["reshards"]}
    traffic = fully_sharded(sizes, itemsize=1, **cut)
    shares = {"exposed": f"{step.exposed:g}", "end": f"{step.end:g}"}
    shares["share"] = embed.format_percent(step.exposed / step.end)
    return {
        "exposed": words["of-step"].format(**shares),
        "whole": format_peak("parameters"),
        "both": format_peak("parameters", "gradient"),
        "sent": embed.format_bytes(traffic.wire),
    }


def pack_lanes(spans: list[UnitSpan]) -> list[list[UnitSpan]]:
    """Return the spans in as few lanes as there are spans at the fullest moment."""
    lanes: list[list[UnitSpan]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.unit)):
        free = [lane for lane in lanes if lane[-1].end <= span.start]
        if free:
            free[0].append(span)
        else:
            lanes.append([span])
    return lanes


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return one step, and the data for simulating others."""
    step = simulate_figure(INITIAL)
    html = render_template(
        "fsdp", words, values=format_answers(INITIAL, words), step=step, end=step.end,
        lanes={
            kind: pack_lanes([span for span in step.memory if span.kind == kind])
            for kind in ("parameters", "gradient")
        },
    )  # fmt: skip
    return Figure(html, {
        "guards": GUARDS,
        "bytes": {name: block_bytes(name) for name in MODELS},
        "controls": _make_controls(words),
    })  # fmt: skip


def _make_controls(words: dict[str, str]) -> list[Any]:
    controls = (
        ("choice", "guard", GUARDS), ("slider", "units", UNITS),
        ("slider", "collective", COLLECTIVES), ("choice", "backward_prefetch", PREFETCHES),
        ("choice", "unit", MODELS), ("slider", "ranks", RANKS),
        ("tick", "forward_prefetch", ()), ("tick", "reshards", ()),
    )  # fmt: skip
    return [make_control(kind, name, words, INITIAL[name], values)
            for kind, name, values in controls]  # fmt: skip
