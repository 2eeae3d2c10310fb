"""The pipeline section: bubbles of real runs against theory, and what the stages hold."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from costlab.implementations import bubble
from costlab.implementations.rounds import Rounds
from costlab.record.noise import NoiseMonitor
from costlab.record.result import Metric
from costlab.record.settings import Settings
from costlab.sections import pipeline
from shardlab.comm import World
from shardlab.pipeline.action import Backward, Forward, Span
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import simulate


def waiting(world: World, schedule: str) -> list[Metric]:
    timelines = bubble.measured(
        world, bubble.stage("wait", 0.02), schedule=schedule, microbatches=4, rounds=3,
        watch=NoiseMonitor(world),
    )  # fmt: skip
    return list(pipeline.metrics(schedule, 4, timelines, kind="wait"))


SCHEDULES = pytest.mark.parametrize(("schedule", "live"), [("gpipe", 4), ("1f1b", 2)])


@SCHEDULES
def test_stages_that_lose_no_time_leave_the_bubble_of_theory(schedule: str, live: int) -> None:
    timeline = simulate(by_name(schedule, 2, 4))
    found = {m.id: m.value for m in pipeline.metrics(schedule, 4, [timeline], kind="wait")}
    start = f"pipeline.{schedule}.p2.m4"
    assert found[f"{start}.bubble-theory"] == pytest.approx(1 / 5)
    assert found[f"{start}.bubble.shardlab.gloo"] == pytest.approx(1 / 5)
    assert found[f"{start}.live.shardlab.gloo"] == live


@SCHEDULES
def test_real_stages_idle_and_hold_their_micro_batches(pool: Any, schedule: str, live: int) -> None:
    found, other = ({m.id: m for m in rank} for rank in pool(2).run(waiting, schedule))
    start = f"pipeline.{schedule}.p2.m4"
    assert 0 < found[f"{start}.bubble.shardlab.gloo"].value < 1
    assert found[f"{start}.live.shardlab.gloo"].value == live
    assert found[f"{start}.live.shardlab.gloo"].how == "counted"
    assert "waiting" in str(found[f"{start}.bubble.shardlab.gloo"].detail["stages"])
    assert found == other


def test_live_is_the_most_of_any_stage_in_the_order_it_ran() -> None:
    first = [Forward(0), Forward(1), Backward(0), Backward(1)]
    last = [Forward(0), Backward(0), Forward(1), Backward(1)]
    timeline = [[Span(action, 0, 1) for action in stage] for stage in (first, last)]
    assert bubble.live(timeline) == 2
    assert bubble.live(timeline[1:]) == 1


def beside(world: World) -> list[Metric]:
    with patch.dict(pipeline.PLANS, quick=Rounds(seconds=0, least=2, most=2, warmup=0)):
        found = list(pipeline.beside_others(world, Settings()))
    return [metric for metric in found if isinstance(metric, Metric)]


@pytest.mark.ci
def test_torchs_and_megatrons_pipelines_run_the_same_step(pool: Any) -> None:
    found = {metric.id: metric for metric in pool(2).run(beside)[0]}
    assert {
        f"pipeline.ratio.shardlab.{name}.gloo" for name in ("torch-pipelining", "megatron-core")
    } < set(found)
    (ours,), (torchs,) = (
        found[f"pipeline.step.{code}.gloo"].series for code in ("shardlab", "torch-pipelining")
    )
    rounds = [one / other for one, other in zip(ours, torchs, strict=True)]
    assert found["pipeline.ratio.shardlab.torch-pipelining.gloo"].series == [rounds]
