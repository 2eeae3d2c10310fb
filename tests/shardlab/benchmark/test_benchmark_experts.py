"""A step of experts, measured beside MoELayer's, with either dispatcher.

`--quick` runs a small part of it, once, and judges nothing.
"""

from __future__ import annotations

import pytest

from tests.shardlab.benchmark import protocol, table
from tests.shardlab.benchmark.contestants import experts

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

COLUMNS = {
    experts.BASE: {"en": "megatron-core's MoELayer", "es": "MoELayer de megatron-core"},
    experts.OURS: {"en": "shardlab, gloo", "es": "shardlab, gloo"},
}
ALL_TO_ALL, ALL_GATHER = (
    table.Layout(f"experts-{kind}", "hidden", {"en": "hidden", "es": "tamaño oculto"}, COLUMNS)
    for kind in ("all-to-all", "all-gather")
)
# hidden → at most so many times MoELayer's step (issue 18).
GOALS = {64: 0.85, 128: 0.85, 512: 1.00}


@pytest.mark.parametrize("layout", [ALL_TO_ALL, ALL_GATHER])
def test_a_step_of_experts_beside_megatrons(quick: bool, layout: table.Layout) -> None:
    dispatch = layout.marker.removeprefix("experts-")
    plan = protocol.QUICK if quick else protocol.Plan()
    settings = [{"hidden": hidden, "dispatch": dispatch} for hidden in GOALS]
    cases = protocol.compare(experts.build, settings, ranks=2, plan=plan)
    result = protocol.record(layout.marker, experts.BASE, cases, plan)
    print(f"\n{dispatch}\n{table.render(result, layout, 'en')}")
    if quick:
        return
    table.publish(result, layout)
    missed = [
        f"hidden {hidden}: {ratio:.2f}× MoELayer's step, the goal is {GOALS[hidden]:.2f}×"
        for case in cases
        if (hidden := case.settings["hidden"]) in GOALS
        and (ratio := case.ratio(experts.OURS, experts.BASE)) > GOALS[hidden]
    ]
    assert not missed, "\n".join(missed)
