"""Theory 10's step, recorded: docs/measured/step-trace.json, which the site draws.

    torchrun --nproc-per-node=2 experiments/35-three-d/traced.py FOLDER --tp 2 --cpu --steps 40
    python -m pages trace --record FOLDER "the command above"

Of thousands of events it keeps what one looks at first: when each rank computed, in which phase,
and when its collectives were under way. Microseconds from the first of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from costlab.record.provenance import provenance
from costlab.record.settings import Settings
from pages.blocks import MEASURED, PageError

RECORD = MEASURED / "step-trace.json"
SMALLEST_GAP = 60  # µs: computes closer than this are drawn as one
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


def merge_computation(trace_events: list[dict[str, Any]]) -> list[Span]:
    """Return the phases in which the main thread ran aten operators, merged."""
    engine = [e for e in trace_events if e["name"].startswith("autograd::engine")]
    backward = engine[0]["ts"]
    update = next(e["ts"] for e in trace_events if e["name"].startswith("Optimizer.step"))
    spans: list[Span] = []
    for event in trace_events:
        start, end = event["ts"], event["ts"] + event["dur"]
        if not event["name"].startswith("aten::") or event["tid"] != event["pid"]:
            continue
        if spans and start < spans[-1][1]:
            continue  # within the one before
        phase = "forward" if start < backward else "backward" if start < update else "update"
        if spans and phase == spans[-1][2] and start - spans[-1][1] < SMALLEST_GAP:
            spans[-1] = (spans[-1][0], end, phase)
        else:
            spans.append((start, end, phase))
    return spans


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


def record(folder: str, command: str) -> None:
    """Condense the traces in a folder, which the command recorded."""
    if not list(Path(folder).glob("rank-*.json")):
        raise PageError(f"{folder} has no rank-0.json: record a step with traced.py first")
    keys = ("date", "processor", "cores", "system", "python", "torch", "commit", "load-before")
    facts = provenance(Settings(), [], ranks=None)
    step = {
        "schema": 1,
        "what": "one step of train.py, the shortest of those recorded",
        "command": command,
        "provenance": {key: facts[key] for key in keys if key in facts},
        "ranks": read_step(Path(folder)),
    }
    RECORD.write_text(_format(step), "utf-8")


def render() -> Iterator[tuple[Path, str]]:
    """Yield the record as it would be written again."""
    yield RECORD, _format(json.loads(RECORD.read_text("utf-8")))


def _format(step: dict[str, Any]) -> str:
    return json.dumps(step, separators=(",", ":")) + "\n"
