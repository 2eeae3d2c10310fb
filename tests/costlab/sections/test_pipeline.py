"""The pipeline section: bubbles of real runs compared with theory, and the stages' memory."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import pytest

from costlab.implementations import bubble
from costlab.implementations.rounds import Rounds
from costlab.record.noise import NoiseMonitor
from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.sections import pipeline
from shardlab.comm import World
from shardlab.pipeline.action import Backward, Forward, Span
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import simulate


def measure_waiting(world: World, schedule: str) -> list[Metric]:
    timelines = bubble.measured(
        world, bubble.stage("wait", 0.02), schedule=schedule, microbatches=4, rounds=3,
        watch=NoiseMonitor(world),
    )  # fmt: skip
    return list(pipeline.metrics(schedule, 4, timelines, kind="wait"))


SCHEDULES = pytest.mark.parametrize(("schedule", "live"), [("gpipe", 4), ("1f1b", 2)])


@SCHEDULES
def test_stages_that_lose_no_time_leave_the_bubble_of_theory(schedule: str, live: int) -> None:
    timeline = simulate(by_name(schedule, 2, 4))
    metrics = {m.id: m.value for m in pipeline.metrics(schedule, 4, [timeline], kind="wait")}
    start = f"pipeline.{schedule}.p2.m4"
    assert metrics[f"{start}.bubble-theory"] == pytest.approx(1 / 5)
    assert metrics[f"{start}.bubble.shardlab.gloo"] == pytest.approx(1 / 5)
    assert metrics[f"{start}.live.shardlab.gloo"] == live


@SCHEDULES
def test_real_stages_idle_and_hold_their_micro_batches(pool: Any, schedule: str, live: int) -> None:
    first_rank, second_rank = (
        {m.id: m for m in rank} for rank in pool(2).run(measure_waiting, schedule)
    )
    start = f"pipeline.{schedule}.p2.m4"
    assert 0 < first_rank[f"{start}.bubble.shardlab.gloo"].value < 1
    assert first_rank[f"{start}.live.shardlab.gloo"].value == live
    assert first_rank[f"{start}.live.shardlab.gloo"].how == "counted"
    assert "waiting" in str(first_rank[f"{start}.bubble.shardlab.gloo"].detail["stages"])
    assert first_rank == second_rank


def test_live_is_the_most_of_any_stage_in_the_order_it_ran() -> None:
    first = [Forward(0), Forward(1), Backward(0), Backward(1)]
    last = [Forward(0), Backward(0), Forward(1), Backward(1)]
    timeline = [[Span(action, 0, 1) for action in stage] for stage in (first, last)]
    assert bubble.live(timeline) == 2
    assert bubble.live(timeline[1:]) == 1


def measure_pipelines(world: World) -> list[Metric]:
    with patch.dict(pipeline.PLANS, quick=Rounds(seconds=0, least=2, most=2, warmup=0)):
        items = list(pipeline.beside_others(world, Settings(), math.inf))
    return [metric for metric in items if isinstance(metric, Metric)]


@pytest.mark.ci
def test_torchs_and_megatrons_pipelines_run_the_same_step(pool: Any) -> None:
    metrics = {metric.id: metric for metric in pool(2).run(measure_pipelines)[0]}
    assert {
        f"pipeline.ratio.shardlab.{name}.gloo" for name in ("torch-pipelining", "megatron-core")
    } < set(metrics)
    (ours,), (torchs,) = (
        metrics[f"pipeline.step.{code}.gloo"].series for code in ("shardlab", "torch-pipelining")
    )
    rounds = [our_time / their_time for our_time, their_time in zip(ours, torchs, strict=True)]
    assert metrics["pipeline.ratio.shardlab.torch-pipelining.gloo"].series == [rounds]
