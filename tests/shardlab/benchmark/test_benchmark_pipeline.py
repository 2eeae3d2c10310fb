"""1F1B, ZB-H1 and their bubbles, measured.

`pytest -m benchmark -s tests/shardlab/benchmark/test_benchmark_pipeline.py [--quick]`; `--quick`
runs a small part, once, and judges nothing. Both want a machine that does nothing else.
"""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from costlab.implementations import bubble, schedulers
from costlab.record.noise import NoiseMonitor
from shardlab.comm import World
from shardlab.proofs.schedules.timeline import bubble as idle
from tests.shardlab.benchmark import protocol, table
from tests.shardlab.benchmark.contestants import zero_bubble

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

HIDDEN = (64, 128, 256, 512)
LAYOUT = table.Layout(
    marker="pipeline",
    key="hidden",
    row={"en": "hidden", "es": "tamaño oculto"},
    columns={
        "megatron-core": {"en": "megatron-core", "es": "megatron-core"},
        "torch pipelining": {"en": "torch pipelining", "es": "torch pipelining"},
        "ours": {"en": "shardlab", "es": "shardlab"},
    },
)


def test_1f1b_takes_no_longer_than_torchs_and_megatrons(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan()
    sizes = HIDDEN[:1] if quick else HIDDEN
    cases = protocol.compare(schedulers.build, [{"hidden": h} for h in sizes], ranks=2, plan=plan)
    result = protocol.record("pipeline", schedulers.BASE, cases, plan)
    print(f"\n{table.render(result, LAYOUT, 'en')}")
    if quick:
        return
    table.publish(result, LAYOUT)
    missed = [
        f"hidden {case.settings['hidden']}: ours takes {ratio:.2f}× the step of {base}"
        for case in cases
        for base in ("megatron-core", "torch pipelining")
        if (ratio := case.ratio("ours", base)) > 1.0
    ]
    assert not missed, "\n".join(missed)


ZERO_BUBBLE = {
    "1f1b": {"en": "1F1B, shardlab", "es": "1F1B, shardlab"},
    "zb-h1": {"en": "ZB-H1, shardlab", "es": "ZB-H1, shardlab"},
    "torch, 1f1b": {"en": "1F1B, torch", "es": "1F1B, torch"},
    "torch, zero bubble": {"en": "zero bubble, torch", "es": "burbuja cero, torch"},
}
# Two stages that compute have a core each; four that wait in place of work measure the schedule and
# its messages alone.
ROW = {"en": "micro-batches", "es": "micro-batches"}
COMPUTING, WAITING = (
    table.Layout(marker=marker, key="microbatches", row=ROW, columns=ZERO_BUBBLE)
    for marker in ("zero-bubble", "zero-bubble-waiting")
)
TIMED = [(COMPUTING, zero_bubble.computing, 2), (WAITING, zero_bubble.waiting, 4)]


@pytest.mark.parametrize(("layout", "build", "ranks"), TIMED)
def test_zb_h1_takes_at_most_95_hundredths_of_1f1bs_step(
    layout: table.Layout, build: Any, ranks: int, quick: bool
) -> None:
    plan = protocol.QUICK if quick else protocol.Plan()
    counts = [ranks] if quick else sorted({ranks, 2 * ranks, 8})
    settings = [{"microbatches": m} for m in counts]
    cases = protocol.compare(build, settings, ranks=ranks, plan=plan)
    result = protocol.record(layout.marker, "1f1b", cases, plan)
    print(f"\n{ranks} stages\n{table.render(result, layout, 'en')}")
    if quick:
        return
    table.publish(result, layout)
    assert cases[0].ratio("zb-h1", "1f1b") <= 0.95  # 1F1B's bubble is a quarter or more
    assert cases[0].ratio("zb-h1", "torch, 1f1b") <= 1.0


def bubbles(world: World, kind: str, settings: dict[str, Any]) -> list[float]:
    waits_apart = kind == "wait apart"
    stage = zero_bubble.WaitingApart(WAIT) if waits_apart else bubble.stage(kind, WAIT)
    timelines = bubble.measured(world, stage, watch=NoiseMonitor(world), **settings)
    return [idle(timeline) for timeline in timelines]


WAIT = 0.02  # seconds
# Stages that compute want a core each; those that wait in place of work measure the schedule and
# its messages alone, and are printed as such.
CASES = [
    (2, "compute", "gpipe"),
    (2, "compute", "1f1b"),
    (2, "wait", "1f1b"),
    (4, "wait", "gpipe"),
    (4, "wait", "1f1b"),
    (8, "wait", "1f1b"),
    (4, "wait apart", "zb-h1"),
]


@pytest.mark.parametrize(("p", "kind", "schedule"), CASES)
def test_the_bubble_is_within_a_twentieth_of_theory(
    pool: Any, quick: bool, p: int, kind: str, schedule: str
) -> None:
    m = 8
    settings = {"schedule": schedule, "microbatches": m, "rounds": 3 if quick else 15}
    idle_share = statistics.median(pool(p).run(bubbles, kind, settings, timeout=300)[0])
    whole = 3 * m + p - 1  # of zb-h1, where forward, backward and weights take as long
    theory = (p - 1) / (whole if schedule == "zb-h1" else m + p - 1)
    label = "computing" if kind == "compute" else "timed waits in place of work"
    print(f"\n{schedule}, {p} stages ({label}): bubble {idle_share:.3f}, in theory {theory:.3f}")
    assert quick or abs(idle_share - theory) <= 0.05
