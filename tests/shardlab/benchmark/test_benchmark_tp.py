"""The tensor-parallel step, measured: `make benchmark` fills the table of the kernels' page.

`--quick` runs a small part of it, once, and judges nothing.
"""

from __future__ import annotations

import pytest

from costlab.implementations import tp
from tests.shardlab.benchmark import protocol, table
from tests.shardlab.benchmark.contestants import linears

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

# Of the large, a round of all contestants takes up to half a minute. Five say how they compare, but
# they spread far: the goal is judged on more rounds of the two that it names.
SMALL, LARGE = (64, 128, 256, 512), (1024, 2048)
HIDDEN = SMALL + LARGE
LAYOUT = table.Layout(
    marker="tensor-parallel",
    key="hidden",
    row={"en": "hidden", "es": "tamaño oculto"},
    columns={
        "megatron-core": {"en": "megatron-core", "es": "megatron-core"},
        "dtensor": {"en": "DTensor", "es": "DTensor"},
        "ours over gloo": {"en": "shardlab, gloo", "es": "shardlab, gloo"},
        "ours over shared memory": {
            "en": "shardlab, shared memory",
            "es": "shardlab, memoria compartida",
        },
        "alone": {"en": "one process, one thread", "es": "un proceso, un hilo"},
        "alone on both cores": {"en": "one process, 2 threads", "es": "un proceso, 2 hilos"},
    },
)

PAIR = ("megatron-core", "ours over gloo")
PAIR_LAYOUT = table.Layout(
    marker="tensor-parallel-large",
    key=LAYOUT.key,
    row=LAYOUT.row,
    columns={name: LAYOUT.columns[name] for name in PAIR},
)

# Where the rest of the model differs too, most of the difference is attention: ours is fused.
LINEARS_LAYOUT = table.Layout(
    marker="tensor-parallel-linears",
    key=LAYOUT.key,
    row=LAYOUT.row,
    columns={
        linears.BASE: {"en": "megatron-core's linears", "es": "lineales de megatron-core"},
        linears.OURS: {"en": "shardlab's linears", "es": "lineales de shardlab"},
    },
)

# hidden, contestant, base: at most so many times the base's step (issue 3).
GOALS = [
    *((hidden, "ours over gloo", "megatron-core", 0.95) for hidden in (64, 128, 256)),
    (512, "ours over gloo", "megatron-core", 1.00),
    (64, "ours over gloo", "dtensor", 0.60),
    (128, "ours over gloo", "dtensor", 0.70),
    (512, "ours over gloo", "dtensor", 0.90),
    (64, "ours over shared memory", "megatron-core", 0.55),
    *((hidden, "ours over shared memory", "alone", 1.00) for hidden in HIDDEN),
]


def test_a_tensor_parallel_step_beside_megatron_core_and_dtensor(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan()
    sizes = SMALL[:2] if quick else SMALL
    cases = protocol.compare(tp.build, [{"hidden": h} for h in sizes], ranks=2, plan=plan)
    if not quick:
        few = protocol.Plan(least=5, warmup=1)
        cases += protocol.compare(tp.build, [{"hidden": h} for h in LARGE], ranks=2, plan=few)
    result = protocol.record("tensor-parallel", tp.BASE, cases, plan)
    print(f"\n{table.render(result, LAYOUT, 'en')}")
    if quick:
        return
    table.publish(result, LAYOUT)
    demand(cases, GOALS)


def test_a_large_step_beside_megatron_cores_alone(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan(warmup=1)
    settings = [{"hidden": hidden, "contestants": PAIR} for hidden in LARGE[: 1 if quick else 2]]
    cases = protocol.compare(tp.build, settings, ranks=2, plan=plan)
    result = protocol.record("tensor-parallel-large", tp.BASE, cases, plan)
    print(f"\n{table.render(result, PAIR_LAYOUT, 'en')}")
    if quick:
        return
    table.publish(result, PAIR_LAYOUT)
    demand(cases, [(hidden, "ours over gloo", "megatron-core", 1.00) for hidden in LARGE])


def test_a_step_that_differs_in_its_linears_alone(quick: bool) -> None:
    plan = protocol.QUICK if quick else protocol.Plan()
    sizes = SMALL[:1] if quick else SMALL
    settings = [{"hidden": hidden} for hidden in sizes]
    cases = protocol.compare(linears.build, settings, ranks=2, plan=plan)
    result = protocol.record("tensor-parallel-linears", linears.BASE, cases, plan)
    print(f"\n{table.render(result, LINEARS_LAYOUT, 'en')}")
    if not quick:
        table.publish(result, LINEARS_LAYOUT)


def demand(cases: list[protocol.Case], goals: list[tuple[int, str, str, float]]) -> None:
    """Fail with every goal that is missed, and by how much."""
    by_hidden = {case.settings["hidden"]: case for case in cases}
    missed = [
        f"hidden {hidden}: {name} takes {ratio:.2f}× the step of {base}, the goal is {goal:.2f}×"
        for hidden, name, base, goal in goals
        if (ratio := by_hidden[hidden].ratio(name, base)) > goal
    ]
    assert not missed, "\n".join(missed)
