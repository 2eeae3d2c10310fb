"""Collectives over each link, measured beside gloo's own.

`pytest -m benchmark -s tests/shardlab/benchmark/test_benchmark_collectives.py [--quick]`
"""

from __future__ import annotations

import pytest

from tests.shardlab.benchmark import collectives, protocol, table

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]


CROWDED = (1, 16, 64, 256, 1024, 4096)  # KiB
LAYOUT = table.Layout(
    marker="crowded",
    key="kib",
    row={"en": "KiB", "es": "KiB"},
    columns={
        "gloo": {"en": "torch, gloo", "es": "torch, gloo"},
        "gloo, batch": {"en": "torch, gloo, batch", "es": "torch, gloo, batch"},
        "shared memory": {"en": "shardlab, shared memory", "es": "shardlab, memoria compartida"},
    },
)


def test_eight_ranks_all_reduce_beside_gloos_own(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan(seconds=3.0, warmup=5)
    settings = [{"kib": kib} for kib in (CROWDED[::2] if quick else CROWDED)]
    cases = protocol.compare(collectives.crowded, settings, ranks=8, plan=plan)
    result = protocol.record("crowded", collectives.BASE, cases, plan)
    print(f"\n{table.render(result, LAYOUT, 'en')}")
    if quick:
        return
    table.publish(result, LAYOUT)
    slower = [
        f"{case.settings['kib']} KiB: {ratio:.2f} of torch, gloo"
        for case in cases
        if (ratio := case.ratio("shared memory", collectives.BASE)) > 1
    ]
    assert not slower, "\n".join(slower)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_each_link_beside_gloos_own(quick: bool, ranks: int) -> None:
    plan = protocol.Plan(launches=1 if quick else 3, seconds=2.0, least=7, warmup=2)
    settings = [
        {"collective": collective, "kib": kib}
        for collective in collectives.COLLECTIVES
        for kib in (collectives.SIZES[::3] if quick else collectives.SIZES)
        if ranks < 8 or kib <= 4096
    ]
    cases = protocol.compare(collectives.build, settings, ranks=ranks, plan=plan)
    for case in cases:
        print(
            f"\n{ranks} ranks, {case.settings['collective']}, {case.settings['kib']} KiB:", end=""
        )
        for name in case.launches[0]:
            typical = min(case.typical(name)) * 1e6
            middle = case.ratios(name, collectives.BASE)
            shown = " ".join(f"{ratio:.2f}" for ratio in middle)
            print(
                f" {name} {case.ratio(name, collectives.BASE):.2f} [{shown}] {typical:.0f} µs;",
                end="",
            )
    missed = [
        f"{case.settings}: {case.ratio('axis over gloo', 'gloo'):.2f} of gloo's, the goal is 0.5"
        for case in cases
        if case.settings["collective"] == "reduce_scatter"
        and case.settings["kib"] >= 16384
        and case.ratio("axis over gloo", "gloo") > 0.5
    ]
    assert quick or not missed, "\n".join(missed)
