"""The data-parallel step, measured: `make benchmark` fills the table of the kernels' page.

`--quick` runs a small part of it, once, and judges nothing.
"""

from __future__ import annotations

import pytest

from tests.shardlab.benchmark import protocol, table
from tests.shardlab.benchmark.contestants import data_parallel

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

HIDDEN = (64, 128, 256, 512)
LAYOUT = table.Layout(
    marker="data-parallel",
    key="hidden",
    row={"en": "hidden", "es": "tamaño oculto"},
    columns={
        "DDP": {"en": "DDP", "es": "DDP"},
        "DDP with bucket views": {"en": "DDP, bucket views", "es": "DDP, vistas del bucket"},
        "ours over gloo": {"en": "shardlab, gloo", "es": "shardlab, gloo"},
        "ours over shared memory": {
            "en": "shardlab, shared memory",
            "es": "shardlab, memoria compartida",
        },
        "no reduction": {"en": "no reduction", "es": "sin reducción"},
    },
)

GOAL = 1.00  # of DDP's step, at every size (issue 3)


def test_a_data_parallel_step_beside_ddp(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan()
    sizes = HIDDEN[:2] if quick else HIDDEN
    cases = protocol.compare(
        data_parallel.build, [{"hidden": h} for h in sizes], ranks=2, plan=plan
    )
    result = protocol.record("data-parallel", data_parallel.BASE, cases, plan)
    print(f"\n{table.render(result, LAYOUT, 'en')}")
    if quick:
        return
    table.publish(result, LAYOUT)
    missed = [
        f"hidden {case.settings['hidden']}: {ratio:.2f}× DDP's step, the goal is {GOAL:.2f}×"
        for case in cases
        if (ratio := case.ratio("ours over gloo", data_parallel.BASE)) > GOAL
    ]
    assert not missed, "\n".join(missed)
