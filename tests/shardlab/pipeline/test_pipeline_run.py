"""Schedules run over real processes, equal to torch's pipelining; one model: test_training.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.pipeline.action import parts
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name, interleaved
from shardlab.proofs.ledger import Ledger
from tests.shardlab import pieces
from tests.shardlab.default_device import on_default_device
from tests.shardlab.difference import difference, differences, list_exceeding
from tests.shardlab.pieces import BATCH, HIDDEN, chunks_of, gradients_of
from tests.shardlab.pool import on_ranks

Differences = dict[str, dict[str, float]]


@on_default_device
def compare_with_torch(world: World, cases: list[tuple[str, int, int]]) -> Differences:
    """The same pieces under torch.distributed.pipelining, on the same group."""
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
    )

    kinds = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
    axis = world.axis("pipeline", range(world.size))
    errors: Differences = {}
    for kind, m, v in cases:
        ours, torch_chunks = chunks_of(world, v), chunks_of(world, v)
        losses = run(
            by_name(kind, world.size, m, v), list(ours), pieces.microbatches(m), pieces.loss,
            axis=axis, shape=(BATCH // m, HIDDEN),
        )  # fmt: skip
        stages = [
            PipelineStage(
                chunk, c * world.size + world.rank, v * world.size, world.device, group=axis.group
            )
            for c, chunk in enumerate(torch_chunks)
        ]
        schedule = kinds[kind](stages if v > 1 else stages[0], m, pieces.loss)
        tokens_B, targets_B = pieces.data()
        torchs: list[Tensor] = []
        schedule.step(
            *[tokens_B] * (world.rank == 0),
            **{"target": targets_B, "losses": torchs} if world.rank == world.size - 1 else {},
        )
        case = f"{kind}, {m} micro-batches, {v} chunks"
        errors[f"{case}, gradients"] = differences(gradients_of(ours), gradients_of(torch_chunks))
        errors[f"{case}, losses"] = {
            str(i): difference(value, torchs[i]) for i, value in enumerate(losses)
        }
        assert len(losses) == len(torchs)
    return errors


@pytest.mark.parametrize(
    ("p", "cases"),
    [
        (1, [("gpipe", 2, 1), ("1f1b", 3, 1)]),
        (2, [("gpipe", 3, 1), ("1f1b", 4, 1), ("interleaved", 4, 2)]),
        (4, [("gpipe", 4, 1), ("1f1b", 6, 1), ("interleaved", 4, 2), ("interleaved", 3, 2)]),
        pytest.param(8, [("1f1b", 8, 1)], marks=pytest.mark.ci),
    ],
)  # fmt: skip
def test_losses_and_gradients_equal_torchs_pipelining(
    pool, p: int, cases: list[tuple[str, int, int]], device: str
) -> None:
    if device == "cuda" and p > torch.cuda.device_count():
        pytest.skip("torch's pipelining over gloo sends a GPU's address as if it were the host's")
    assert list_exceeding(pool(p).run(compare_with_torch, cases)) == []


@pytest.mark.parametrize("p", [2, 4])
@on_ranks("p", default_device=True)
def test_the_ledger_counts_each_boundary_once_each_way(world: World) -> None:
    """What the ledger saw of each schedule, and what the schedule says."""
    counted: dict[str, tuple[object, object]] = {}
    for kind, m, v in [
        ("gpipe", 4, 1),
        ("1f1b", 6, 1),
        ("interleaved", 4, 2),
        ("forward-only", 3, 1),
    ]:
        schedule = by_name(kind, world.size, m, v)
        chunks = chunks_of(world, v)
        with Ledger() as ledger:
            run(
                schedule, list(chunks), pieces.microbatches(m), pieces.loss,
                axis=world.axis("pipeline", range(world.size)), shape=(BATCH // m, HIDDEN),
            )  # fmt: skip
        # Every boundary of this stage's pieces, forward and (in training) backward, m times each.
        ends = [2 - (chunk.first + chunk.last) for chunk in chunks]
        count = m * sum(ends) // (2 if kind == "forward-only" else 1)
        expected = dict.fromkeys(("send", "recv"), count)
        if kind == "forward-only":
            expected = {
                "send": m * (world.rank < world.size - 1), "recv": m * (world.rank > 0),
            }  # fmt: skip
        size = BATCH // m * HIDDEN * 8
        counted[kind] = (
            {op: (ledger.total(op).count, ledger.total(op).payload) for op in expected},
            {op: (n, n * size) for op, n in expected.items()},
        )
        assert {entry.op for entry in ledger.entries} <= {"send", "recv"}
    for kind, (actual, expected) in counted.items():
        assert actual == expected, kind


@on_default_device
def run_other_ways(world: World) -> Differences:
    """The same step over other links, with messages checked, with exchanges taken apart."""
    schedule = interleaved(world.size, 4, 2)
    unfused = [[part for action in actions for part in parts(action)] for actions in schedule]
    checked = World(check=True, device=world.device)
    other = "shared-memory" if world.device.type == "cpu" else "torch"
    ranks = range(world.size)
    errors: Differences = {}
    expected: dict[str, Tensor] = {}
    for case, axis, actions in [
        ("torch", world.axis("pipeline", ranks), schedule),
        ("taken apart", world.axis("pipeline", ranks), unfused),
        ("another link", world.axis("pipeline", ranks, link=other), schedule),
        ("checked", checked.axis("pipeline", ranks), schedule),
    ]:
        chunks = chunks_of(world, 2)
        run(
            actions, list(chunks), pieces.microbatches(4), pieces.loss, axis=axis,
            shape=(BATCH // 4, HIDDEN),
        )  # fmt: skip
        expected = expected or gradients_of(chunks)
        errors[case] = differences(gradients_of(chunks), expected)
    return errors


@pytest.mark.parametrize("p", [2, 4])
def test_any_link_carries_it_and_blocking_order_is_not_needed(pool, p: int) -> None:
    """Taken apart it would deadlock if a send were waited for: test_deadlock.py shows that."""
    assert list_exceeding(pool(p).run(run_other_ways), tolerance=0) == []
