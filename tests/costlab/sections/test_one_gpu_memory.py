"""What is copied beneath products, and between host and device: the arithmetic, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from costlab.publish.tabulated import TABLES
from costlab.record.result import Metric
from costlab.record.settings import Settings
from costlab.sections import device_clock
from costlab.sections.one_gpu import copy_overlap, memory, one_gpu
from shardlab.comm import World

CPU = torch.device("cpu")


@pytest.mark.parametrize(("both", "share"), [(10.0, 1.0), (14.0, 0.0), (12.0, 0.5)])
def test_a_copys_hidden_share_is_what_running_both_saves_of_the_shorter(
    both: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product() -> str:
        return "product"

    def seconds(_: torch.device, step: Callable[[], object]) -> float:
        made = step()  # the copy returns its tensor
        return both if made is None else 10.0 if made == "product" else 4.0

    monkeypatch.setattr(device_clock, "seconds", seconds)
    found = list(copy_overlap.metrics(CPU, 16, product, rounds=3, seed=0))
    assert [one.id for one in found] == ["gpu.h16.hidden-copy.device", "gpu.h16.hidden-copy.host"]
    assert {(one.value, one.samples) for one in found} == {(share, 3)}
    assert found[0].detail == {"bytes": 6144, "product": 10.0, "copy": 4.0, "both": both}


def test_on_a_gpu_the_copy_has_a_stream_of_its_own_and_both_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def stream(name: str) -> Any:
        return SimpleNamespace(
            name=name, wait_stream=lambda other: done.append(f"{name} waits for {other.name}")
        )

    @contextmanager
    def on(one: Any) -> Any:
        done.append(f"on {one.name}")
        yield
        done.append("back")

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: stream("side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", on)
    gpu = torch.device("cuda", 0)
    copy_overlap._both(gpu, lambda: done.append("product"), lambda: done.append("copy"))()
    begun = ["side waits for main", "on side", "copy", "back"]
    assert done == [*begun, "product", "main waits for side"]


def test_copies_between_kinds_of_device_are_counted_and_no_others() -> None:
    there, here = torch.empty(6, device="meta"), torch.zeros(3)
    with memory.Copied() as copied:
        there[:3].copy_(here)
        here.to("meta", torch.float64)
        here.clone().add_(here.to(torch.float64))
        torch.zeros_like(here, device="meta")  # nothing is copied
    assert copied.bytes == {("cpu", "meta"): 24}


def measured(world: World) -> list[Metric]:
    """The whole section, tiny, on the processor."""
    tiny: Any = {"HIDDEN": (16,), "STEPPED": (16,), "TOKENS": 4}
    with patch.multiple(one_gpu, **tiny):
        found = list(one_gpu.everything(world, Settings()))
    return [one for one in found if isinstance(one, Metric)]


@pytest.mark.ci
def test_the_whole_section_runs_where_a_processor_stands_in(pool: Any) -> None:
    """It copies nothing to itself; a step holds sixteen bytes a parameter, and its text."""
    metrics = pool(1).run(measured)[0]
    found = {one.id: one for one in metrics}
    state = found["gpu.h16.state.formula"]
    assert found["gpu.h16.state"].value == pytest.approx(state.value, rel=0.2)
    assert found["gpu.h16.peak"].value > found["gpu.h16.state"].value
    for way in ("up", "down"):
        one = found[f"gpu.h16.offloaded.{way}"]
        assert (one.value, one.detail["weights"]) == (0, state.value / 4)
    shown = {one.id for table in TABLES for one in table.rows(metrics)}
    assert found.keys() - shown == {one for one in found if "modelled" in one}
