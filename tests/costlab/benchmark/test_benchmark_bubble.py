"""Compares the bubbles of GPipe, 1F1B and ZB-H1 with theory.

The section "pipeline" measures GPipe and 1F1B on two stages and on four, for the claims; here more
stages and ZB-H1, whose weights' gradients are a third of the work, are judged.
"""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from costlab.implementations import bubble
from costlab.implementations.schedulers import WaitingApart
from costlab.record.noise import NoiseMonitor
from shardlab.comm import World
from shardlab.proofs.schedules.timeline import bubble as idle

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

MICROBATCHES, WAIT = 8, 0.02  # seconds
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


def bubbles(world: World, kind: str, settings: dict[str, Any]) -> list[float]:
    stage = WaitingApart(WAIT) if kind == "wait apart" else bubble.stage(kind, WAIT)
    timelines = bubble.measured(world, stage, watch=NoiseMonitor(world), **settings)
    return [idle(timeline) for timeline in timelines]


@pytest.mark.parametrize(("p", "kind", "schedule"), CASES)
def test_the_bubble_is_within_a_twentieth_of_theory(
    pool: Any, quick: bool, p: int, kind: str, schedule: str
) -> None:
    m = MICROBATCHES
    settings = {"schedule": schedule, "microbatches": m, "rounds": 3 if quick else 15}
    idle_share = statistics.median(pool(p).run(bubbles, kind, settings, timeout=300)[0])
    whole = 3 * m + p - 1  # of zb-h1, where forward, backward and weights take as long
    theory = (p - 1) / (whole if schedule == "zb-h1" else m + p - 1)
    label = "computing" if kind == "compute" else "timed waits in place of work"
    print(f"\n{schedule}, {p} stages ({label}): bubble {idle_share:.3f}, in theory {theory:.3f}")
    assert quick or abs(idle_share - theory) <= 0.05
