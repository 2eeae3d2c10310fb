"""Our pipeline, on every product of TP, PP and DP up to 8, beside megatron-core's 1F1B.

Megatron divides each micro-batch's loss by their number, averages over data-parallel ranks, sums
norms' gradients over tensor ranks and tied embeddings' over the first and the last stage. A factor
that either side misses shows in the gradients already; a copy of the tied weight that drifts from
the other, in the parameters after four steps.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.shardlab.difference import demand_alike
from tests.shardlab.gpt_twins import HEADS, Case, compared, steps_for

GRIDS = [
    pytest.param(t, p, d, marks=[pytest.mark.ci] * (p > 2 or t * p * d == 8))
    for t in (1, 2, 4, 8)
    for p in (2, 4, 8)
    for d in (1, 2, 4, 8)
    if t * p * d <= 8
]


def variants(tensor: int, pipeline: int, data: int) -> list[Case]:
    """Everything off under one schedule, everything on under the other."""
    return [
        Case(tensor, pipeline, data, False, HEADS, False, "gpipe", microbatches=2),
        Case(
            tensor, pipeline, data, True, max(tensor, 2), tensor > 1, "1f1b",
            microbatches=pipeline + 1, steps=steps_for(tensor * pipeline * data, 1),
        ),
        Case(
            tensor, pipeline, data, groups=max(tensor, 2), sequence_parallel=tensor > 1,
            microbatches=pipeline, steps=steps_for(tensor * pipeline * data, 1), llama=True,
        ),
    ]  # fmt: skip


@pytest.mark.gpu_each
@pytest.mark.parametrize(("tensor", "pipeline", "data"), GRIDS)
def test_a_pipeline_equals_megatrons(pool: Any, tensor: int, pipeline: int, data: int) -> None:
    cases = variants(tensor, pipeline, data)
    demand_alike(pool(tensor * pipeline * data).run(compared, cases))
