"""Theory 10's step, recorded: docs/measured/step-trace.json, which the site draws.

    torchrun --nproc-per-node=2 experiments/35-three-d/traced.py FOLDER --tp 2 --cpu --steps 40
    torchrun … traced.py WIDE --tp 2 --cpu --steps 40 --hidden 512
    python -m pages trace --record FOLDER "its command" WIDE "its command"

Of thousands of events it keeps what one looks at first: when each rank computed, in which phase,
and when its collectives were under way. Microseconds from the first of them. Of a wider model it
keeps sums only: theory 10 compares backward with forward in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from costlab.record.options import Settings
from costlab.record.provenance import provenance
from pages.blocks import MEASURED, PageError

RECORD = MEASURED / "step-trace.json"
SMALLEST_GAP = 60  # µs: computes closer than this are drawn as one
PRODUCTS = ("aten::mm", "aten::addmm")
Span = tuple[float, float, str]


def read_events(file: Path) -> list[dict[str, Any]]:
    """Return a trace's spans, ordered by their start."""
    spans = [e for e in json.loads(file.read_text("utf-8"))["traceEvents"] if e.get("ph") == "X"]
    return sorted(spans, key=lambda event: (event["ts"], -event["dur"]))


def select_collectives(trace_events: Iterable[dict[str, Any]]) -> list[Span]:
    """Return the spans of gloo's own threads."""
    return [
        (e["ts"], e["ts"] + e["dur"], e["name"].removeprefix("gloo:"))
        for e in trace_events
        if e["name"].startswith("gloo:")
    ]


def select_operators(trace_events: list[dict[str, Any]]) -> Iterator[tuple[str, float, float, str]]:
    """Yield name, start, end and phase of each of the main thread's aten operators."""
    engine = [e for e in trace_events if e["name"].startswith("autograd::engine")]
    backward = engine[0]["ts"]
    update = next(e["ts"] for e in trace_events if e["name"].startswith("Optimizer.step"))
    for event in trace_events:
        if event["name"].startswith("aten::") and event["tid"] == event["pid"]:
            start = event["ts"]
            phase = "forward" if start < backward else "backward" if start < update else "update"
            yield event["name"], start, start + event["dur"], phase


def merge_computation(trace_events: list[dict[str, Any]]) -> list[Span]:
    """Return the phases in which the main thread ran aten operators, merged."""
    spans: list[Span] = []
    for _, start, end, phase in select_operators(trace_events):
        if spans and start < spans[-1][1]:
            continue  # within the one before
        if spans and phase == spans[-1][2] and start - spans[-1][1] < SMALLEST_GAP:
            spans[-1] = (spans[-1][0], end, phase)
        else:
            spans.append((start, end, phase))
    return spans


def sum_operators(trace_events: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return for each phase the number of products, their time and that of all operators, in µs.

    The products are those of linear layers. An operator within another counts once.
    """
    sums: dict[str, dict[str, float]] = {}
    latest = 0.0
    for name, start, end, phase in select_operators(trace_events):
        totals = sums.setdefault(phase, {"products": 0, "products-us": 0, "operators-us": 0})
        if start >= latest:
            totals["operators-us"] = round(totals["operators-us"] + end - start, 1)
            latest = end
        if name in PRODUCTS:
            totals["products"] += 1
            totals["products-us"] = round(totals["products-us"] + end - start, 1)
    return sums


def read_step(folder: Path) -> list[dict[str, list[Span]]]:
    """Return each rank's spans, in µs from the first span; torch's clock is the host's."""
    ranks = []
    for file in sorted(folder.glob("rank-*.json")):
        trace_events = read_events(file)
        ranks.append(
            {
                "compute": merge_computation(trace_events),
                "collectives": select_collectives(trace_events),
            }
        )
    first = min(span[0] for rank in ranks for spans in rank.values() for span in spans)
    return [
        {
            kind: [(round(a - first, 1), round(b - first, 1), what) for a, b, what in spans]
            for kind, spans in rank.items()
        }
        for rank in ranks
    ]


def read_sums(folder: Path) -> list[dict[str, dict[str, float]]]:
    """Return each rank's sums by phase."""
    return [sum_operators(read_events(file)) for file in sorted(folder.glob("rank-*.json"))]


def record(folder: str, command: str, wide_folder: str, wide_command: str) -> None:
    """Condense the traces in a folder, and sum those of a wider model; the commands made them."""
    keys = ("date", "processor", "cores", "system", "python", "torch", "commit")
    facts = provenance(Settings(), [], ranks=None)
    step = {
        "schema": 1,
        "what": "one step of train.py, the shortest of those recorded",
        "command": command,
        "provenance": {
            **{key: facts[key] for key in keys if key in facts},
            "load-before": _read_load(Path(folder)),
        },
        "sums": read_sums(Path(folder)),
        "wide": {
            "command": wide_command,
            "load-before": _read_load(Path(wide_folder)),
            "sums": read_sums(Path(wide_folder)),
        },
        "ranks": read_step(Path(folder)),
    }
    RECORD.write_text(_format(step), "utf-8")


def _read_load(folder: Path) -> float:
    """Return the machine's load before the steps, which traced.py wrote into the trace."""
    file = folder / "rank-0.json"
    if not file.is_file():
        raise PageError(f"{folder} has no rank-0.json: record a step with traced.py first")
    load: float = json.loads(file.read_text("utf-8"))["load-before"]
    return load


def render() -> Iterator[tuple[Path, str]]:
    """Yield the record as it would be written again."""
    yield RECORD, _format(json.loads(RECORD.read_text("utf-8")))


def _format(step: dict[str, Any]) -> str:
    return json.dumps(step, separators=(",", ":")) + "\n"
