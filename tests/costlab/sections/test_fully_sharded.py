"""Sharded data parallelism: hidden communication, memory, and the arithmetic for both."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from costlab.implementations import fsdp as contestants
from costlab.implementations.fsdp import Training
from costlab.implementations.rounds import Rounds
from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.sections.breakdown import SilentAxis
from costlab.sections.fully_sharded import footprint, fully_sharded, timeline
from costlab.sections.fully_sharded.footprint import LiveBytes, Model
from costlab.sections.fully_sharded.timeline import Span
from shardlab.comm import World
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

HIDDEN = 64
MIB = 1 << 20
PEAKS = ("shardlab.gloo", "torch-fsdp1.gloo", "torch-ddp.gloo", "formula")
NAMED = "fsdp.h8.hidden-share.shardlab.gloo"


def test_live_bytes_rise_with_a_tensor_and_fall_when_it_goes() -> None:
    with LiveBytes() as live:
        live_tensor = torch.zeros(MIB)
        temporary = torch.zeros(2 * MIB)
        assert live.now == 12 * MIB
        view = temporary[:1]
        del temporary
        assert live.now == 12 * MIB  # the view holds all of it
        del view
        assert (live.now, live.peak) == (4 * MIB, 12 * MIB)
        live_tensor.untyped_storage().resize_(0)
        live.reset()
        assert (live.now, live.peak) == (0, 0)


def test_live_bytes_count_a_tensor_that_lies_where_another_lay() -> None:
    with LiveBytes() as live:
        for _ in range(3):
            again = torch.zeros(MIB)
            assert live.now == 4 * MIB
            del again


@pytest.mark.ci
@on_ranks(2)
def test_a_silent_step_runs_and_sends_nothing(world: World) -> None:
    axis = SilentAxis(2, world.rank)
    training = Training(world, lambda _, gpt: contestants.ours(axis, gpt), HIDDEN)
    with Ledger() as ledger:
        training.step()
        loss = training.step()
    assert math.isfinite(loss)
    assert not ledger.entries


def measure_footprints(world: World) -> dict[str, footprint.Footprint]:
    return {
        "fsdp": footprint.measured(world, contestants.WRAPS["ours over gloo"], HIDDEN),
        "fsdp1": footprint.measured(world, contestants.WRAPS["FSDP1"], HIDDEN),
        "ddp": footprint.measured(world, contestants.WRAPS["DDP"], HIDDEN),
    }


@pytest.mark.ci
def test_what_is_held_is_what_the_arithmetic_says(pool: Any) -> None:
    model = fully_sharded._model(HIDDEN)
    for footprints in pool(2).run(measure_footprints):
        for name in ("fsdp", "fsdp1"):  # ours, and PyTorch's
            assert footprints[name].state == pytest.approx(footprint.sharded(model, 2), rel=0.02)
        buckets = 4 * model.parameters
        assert footprints["ddp"].state == pytest.approx(
            footprint.sharded(model, 1) + buckets, rel=0.02
        )
        peak = footprint.sharded_peak(
            model, 2, footprints["ddp"].activations + fully_sharded.LOGITS
        )
        assert footprints["fsdp"].peak == pytest.approx(peak, rel=0.1)
        assert footprints["fsdp"].peak < footprints["ddp"].peak


def test_what_cudas_allocator_held_before_is_no_part_of_a_footprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An allocator that holds a gigabyte of others', and counts what it gives as LiveBytes does."""
    live, foreign_bytes = LiveBytes(), 10**9
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: live.now + foreign_bytes)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: live.peak + foreign_bytes)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: live.reset())
    world: Any = SimpleNamespace(device=torch.device("cpu"), rank=0)
    monkeypatch.setattr(footprint, "LiveBytes", lambda: footprint.Allocated(world.device))
    with live:
        measured = footprint.measured(world, lambda _, gpt: gpt, HIDDEN)
    assert measured.state == pytest.approx(
        footprint.sharded(fully_sharded._model(HIDDEN), 1), rel=0.02
    )
    assert measured.state < measured.peak < foreign_bytes


@pytest.mark.parametrize(("step", "cost"), [(2.0, 0.0), (4.0, 0.5), (1.6, -0.25)])
def test_the_cost_of_communication_is_what_a_step_would_save_without_it(
    step: float, cost: float
) -> None:
    times = {"shardlab.gloo": [step] * 3, "silent": [2.0] * 3, "communication": [1.0] * 3}
    metrics = {metric.id: metric for metric in fully_sharded.shares_of(128, times, 2, "gloo")}
    saved = metrics["fsdp.h128.communication-cost.shardlab.gloo"]
    assert saved.how == "derived"
    assert [saved.low, saved.value, saved.high] == pytest.approx([cost] * 3)


@on_ranks(2)
def test_the_hidden_share_is_the_mean_over_the_ranks(world: World) -> None:
    """Return the share of ranks' timelines, of which rank 1 hides twice as much as rank 0."""
    step = [Span("rank 0 compute", "", 0, 1 + world.rank), Span("rank 0 communication", "", 0, 4)]
    with patch.object(timeline, "steps", lambda *_: itertools.repeat(step)):
        *progress, metric = fully_sharded.hidden_share(world, 8, 5)
    assert progress[-2] == "hidden 8: timeline 5 of 5"  # a rank that says nothing is taken for hung
    assert (metric.id, metric.how, metric.samples) == (NAMED, "measured", 5)
    assert [metric.low, metric.value, metric.high] == [0.375] * 3


def list_metric_ids(world: World) -> list[str]:
    brief = Rounds(seconds=0, least=2, most=2, warmup=0)
    with (
        patch.object(fully_sharded, "HIDDEN", {"quick": (8,)}),
        patch.dict(fully_sharded.PLANS, quick=brief),
        patch.dict(fully_sharded.STEPS, quick=2),
        patch.object(timeline, "HIDDEN", 8),
    ):
        items = list(fully_sharded.measure(world, Settings()))
    return [metric.id for metric in items if isinstance(metric, Metric)]


@pytest.mark.ci
def test_the_section_has_steps_ratios_memory_and_a_timeline(pool: Any) -> None:
    names, other_names = pool(2).run(list_metric_ids)
    assert len(set(names)) == len(names)
    wanted = {
        *(f"fsdp.h8.step.{name}" for name in fully_sharded.names("gloo")),
        *(f"fsdp.h8.ratio.shardlab.{name}.gloo" for name in fully_sharded.THEIRS),
        *(f"fsdp.h8.ratio.torch-{name}.torch-ddp.gloo" for name in ("fsdp1", "fsdp2")),
        *(f"fsdp.h8.peak.{name}" for name in PEAKS),
        "fsdp.h8.hidden-share.shardlab.gloo", "fsdp.h8.communication-cost.shardlab.gloo",
        "fsdp.largest.replicated.80GiB", "fsdp.largest.sharded-8.80GiB",
    }  # fmt: skip
    assert wanted <= set(names)
    assert any(name.startswith("timeline.") for name in names)
    assert [n for n in names if n in wanted] == [n for n in other_names if n in wanted]


def test_the_largest_model_fits_and_the_next_does_not() -> None:
    card = footprint.CARDS["80GiB"]
    model = footprint.largest(lambda model: footprint.sharded(model, 1) <= card)
    hidden = model.root // footprint.VOCAB
    assert (
        footprint.sharded(model, 1)
        <= card
        < footprint.sharded(footprint.family(hidden + footprint.STEP), 1)
    )


def test_sharding_over_eight_cards_holds_a_larger_model() -> None:
    metrics = {metric.id: metric for metric in footprint.largest_models()}
    alone, eight = (metrics[f"fsdp.largest.{n}.80GiB"].value for n in ("replicated", "sharded-8"))
    assert 4 < eight / alone < 8  # not eight times: some parameters are whole at any moment
    assert all(metric.how == "modelled" for metric in metrics.values())


def test_the_peak_is_where_activations_or_gradients_are_most() -> None:
    model = Model(parameters=1000, root=100, block=225)
    whole = 4 * (100 + 2 * 225)
    assert footprint.sharded_peak(model, 2, 10**6) == 6000 + whole + 10**6
    assert footprint.sharded_peak(model, 2, 0) == 8000 + whole + 4 * 325
