"""One GPU: the arithmetic, on tiny shapes of a CPU that is never shown as one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from costlab.record.settings import Settings
from costlab.sections import one_gpu

CPU = torch.device("cpu")


def test_a_cpu_is_never_shown_as_a_gpu() -> None:
    world: Any = SimpleNamespace(device=CPU)
    assert list(one_gpu.measure(world, Settings())) == ["no GPU here: nothing is measured"]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_ranks_products_are_an_nth_of_a_blocks(ranks: int) -> None:
    step, flops = one_gpu.block(CPU, 16, ranks, torch.float32, tokens=4)
    assert flops == 6 * 4 * 12 * 16**2 // ranks
    with FlopCounterMode(display=False) as counter:
        step()
    assert counter.get_total_flops() == flops


def test_efficiency_is_a_whole_blocks_time_over_n_times_a_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter([8.0, 5.0] * 4 + [80.0, 50.0])  # a round that took ten times as long
    monkeypatch.setattr(one_gpu, "_seconds", lambda *_: next(seconds))
    whole, half = one_gpu.efficiencies(CPU, 16, "fp32", tokens=4, tensor=(1, 2), rounds=3)
    assert (whole.id, whole.value) == ("gpu.h16.tp1.fp32.efficiency", 1.0)
    assert (half.id, half.value) == ("gpu.h16.tp2.fp32.efficiency", pytest.approx(0.8))


@pytest.mark.parametrize("dtype", one_gpu.DTYPES)
def test_every_dtype_runs_at_tiny_shapes(dtype: str) -> None:
    found = list(one_gpu.efficiencies(CPU, 16, dtype, tokens=4, rounds=1))
    assert [metric.detail["tokens"] for metric in found] == [4] * 4
    assert all(metric.value > 0 for metric in found)


def test_the_all_reduce_is_modelled_and_says_from_what() -> None:
    found = {metric.id: metric for metric in one_gpu.modelled(1024, tokens=1000)}
    one = found["gpu.h1024.tp4.modelled-allreduce.nvlink4"]
    assert one.value == pytest.approx(6 * 5e-6 + 1.5 * 2_048_000 / 450e9)
    assert {metric.how for metric in found.values()} == {"modelled"}
    assert all(metric.detail["source"] for metric in found.values())
