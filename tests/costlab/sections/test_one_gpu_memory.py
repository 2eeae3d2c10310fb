"""Copies during products, and copies between host and device: the arithmetic, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from costlab.publish.results_tables import TABLES
from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.sections import device_clock, one_gpu, one_gpu_memory
from shardlab.comm import World

CPU = torch.device("cpu")


@pytest.mark.parametrize(("both", "share"), [(10.0, 1.0), (14.0, 0.0), (12.0, 0.5)])
def test_a_copys_hidden_share_is_what_running_both_saves_of_the_shorter(
    both: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product() -> str:
        return "product"

    def seconds(_: torch.device, step: Callable[[], object]) -> float:
        result = step()  # the copy returns its tensor
        return both if result is None else 10.0 if result == "product" else 4.0

    monkeypatch.setattr(device_clock, "seconds", seconds)
    metrics = list(one_gpu_memory.hidden_copies(CPU, 16, product, rounds=3, seed=0))
    assert [metric.id for metric in metrics] == [
        "gpu.h16.hidden-copy.device",
        "gpu.h16.hidden-copy.host",
    ]
    assert {(metric.value, metric.samples) for metric in metrics} == {(share, 3)}
    assert metrics[0].detail == {"bytes": 6144, "product": 10.0, "copy": 4.0, "both": both}


def test_on_a_gpu_the_copy_has_a_stream_of_its_own_and_both_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def stream(name: str) -> Any:
        return SimpleNamespace(
            name=name, wait_stream=lambda awaited: done.append(f"{name} waits for {awaited.name}")
        )

    @contextmanager
    def on(stream: Any) -> Any:
        done.append(f"on {stream.name}")
        yield
        done.append("back")

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: stream("side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", on)
    gpu = torch.device("cuda", 0)
    one_gpu_memory._both(gpu, lambda: done.append("product"), lambda: done.append("copy"))()
    begun = ["side waits for main", "on side", "copy", "back"]
    assert done == [*begun, "product", "main waits for side"]


def test_copies_between_kinds_of_device_are_counted_and_no_others() -> None:
    on_meta, on_cpu = torch.empty(6, device="meta"), torch.zeros(3)
    with one_gpu_memory.Copied() as copied:
        on_meta[:3].copy_(on_cpu)
        on_cpu.to("meta", torch.float64)
        on_cpu.clone().add_(on_cpu.to(torch.float64))
        torch.zeros_like(on_cpu, device="meta")  # nothing is copied
    assert copied.bytes == {("cpu", "meta"): 24}


def measure_everything(world: World) -> list[Metric]:
    """Run the whole section on the processor, with tiny shapes."""
    tiny: Any = {"HIDDEN": (16,), "STEPPED": (16,), "TOKENS": 4}
    with patch.multiple(one_gpu, **tiny):
        items = list(one_gpu.everything(world, Settings()))
    return [item for item in items if isinstance(item, Metric)]


@pytest.mark.ci
def test_the_whole_section_runs_where_a_processor_stands_in(pool: Any) -> None:
    """It copies nothing to itself; a step holds sixteen bytes a parameter, and its text."""
    metrics = pool(1).run(measure_everything)[0]
    by_id = {metric.id: metric for metric in metrics}
    state = by_id["gpu.h16.state.formula"]
    assert by_id["gpu.h16.state"].value == pytest.approx(state.value, rel=0.2)
    assert by_id["gpu.h16.peak"].value > by_id["gpu.h16.state"].value
    for way in ("up", "down"):
        metric = by_id[f"gpu.h16.offloaded.{way}"]
        assert (metric.value, metric.detail["weights"]) == (0, state.value / 4)
    shown = {metric.id for table in TABLES for metric in table.rows(metrics)}
    assert by_id.keys() - shown == {metric for metric in by_id if "modelled" in metric}
