"""One GPU: the arithmetic, tested on a CPU with tiny shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from costlab.record.options import Settings
from costlab.sections import device_clock, one_gpu

CPU = torch.device("cpu")
CACHE = 20_000  # bytes


def test_a_cpu_is_never_shown_as_a_gpu() -> None:
    world: Any = SimpleNamespace(device=CPU)
    assert list(one_gpu.measure(world, Settings())) == ["no GPU here: nothing is measured"]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_ranks_products_are_an_nth_of_a_blocks(ranks: int) -> None:
    (step,), flops = one_gpu.block(CPU, 16, ranks, torch.float32, tokens=4)
    assert flops == 6 * 4 * 12 * 16**2 // ranks
    with FlopCounterMode(display=False) as counter:
        step()
    assert counter.get_total_flops() == flops


def make_block(_device: torch.device, _hidden: int, ranks: int, *_: Any, **__: Any) -> Any:
    """Return a block whose step returns its number of ranks."""
    return [lambda: ranks], 1


def test_efficiency_is_a_whole_blocks_time_over_n_times_a_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # By axis size, in whatever order they are visited; the last round took ten times as long.
    seconds = {
        ranks: iter([duration] * 4 + [10 * duration]) for ranks, duration in ((1, 8.0), (2, 5.0))
    }
    monkeypatch.setattr(one_gpu, "block", make_block)
    monkeypatch.setattr(device_clock, "seconds", lambda _, step: next(seconds[step()]))
    whole, half = one_gpu.efficiencies(CPU, 16, "fp32", tokens=4, tensor=(1, 2), rounds=3)
    assert (whole.id, whole.value) == ("gpu.h16.tp1.fp32.efficiency", 1.0)
    assert half.id == "gpu.h16.tp2.fp32.efficiency" and half.value == pytest.approx(0.8)


def test_every_round_visits_every_axis_size_in_an_order_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visited: list[int] = []
    monkeypatch.setattr(one_gpu, "block", make_block)

    def seconds(_: torch.device, step: Callable[[], int]) -> float:
        visited.append(step())
        return 1.0

    monkeypatch.setattr(device_clock, "seconds", seconds)
    list(one_gpu.efficiencies(CPU, 16, "fp32", rounds=8))
    orders = [tuple(visited[start : start + 4]) for start in range(0, len(visited), 4)]
    assert {tuple(sorted(order)) for order in orders} == {(1, 2, 4, 8)}
    assert len(set(orders)) > 1


def test_on_a_gpu_each_set_is_captured_and_its_graph_timed_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU by its name alone: its steps cost nothing eager, and a second each in a graph."""
    properties = SimpleNamespace(L2_cache_size=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(one_gpu, "block", make_block)
    monkeypatch.setattr(device_clock, "graphed", lambda _, step: lambda: 10 * step())
    monkeypatch.setattr(device_clock, "seconds", lambda _, step: float(step()))
    gpu: Any = SimpleNamespace(type="cuda")
    metrics = {
        metric.id: metric
        for metric in one_gpu.efficiencies(gpu, 16, "bf16", tensor=(1, 2), rounds=1)
    }
    assert metrics["gpu.h16.tp2.bf16.efficiency"].detail["seconds"] == 2
    assert metrics["gpu.h16.tp2.bf16.efficiency.graphed"].detail["seconds"] == 20
    assert len(metrics) == 4
    assert {metric.value for metric in metrics.values() if ".tp2." in metric.id} == {1 / 4}, (
        "of its own kind"
    )


class FakeCuda:
    """A torch.cuda for a clock: records its calls, and derives the time from them."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def Event(self, enable_timing: bool) -> Any:
        at: list[int] = []

        def record() -> None:
            at.append(len(self.done))
            self.done.append("record")

        return SimpleNamespace(
            at=at, record=record, elapsed_time=lambda end: 1000 * (end.at[0] - at[0])
        )

    def synchronize(self, _: Any) -> None:
        self.done.append("synchronize")

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(replay=lambda: self.done.append("replay"))

    @contextmanager
    def graph(self, _: Any) -> Iterator[None]:
        self.done.append("capture")
        yield
        self.done.append("captured")


def test_a_gpus_events_enclose_the_step_and_a_graph_is_captured_after_a_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, gpu = FakeCuda(), torch.device("cuda", 0)
    for name in ("Event", "synchronize", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    replay = device_clock.graphed(gpu, lambda: fake.done.append("step"))
    assert fake.done == ["step", "synchronize", "capture", "step", "captured"]
    fake.done.clear()
    assert device_clock.seconds(gpu, replay) == 2
    assert fake.done == ["record", "replay", "record", "synchronize"]


def test_off_a_gpu_nothing_is_captured() -> None:
    assert device_clock.graphed(CPU, make_block) is make_block


class Operands(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the addresses and sizes of a product's operands."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            for tensor in args:
                self.seen[tensor.untyped_storage().data_ptr()] = (
                    tensor.numel() * tensor.element_size()
                )
        return func(*args, **(kwargs or {}))


def test_a_steps_matrices_are_not_the_last_ones_and_fill_the_cache_twice() -> None:
    sets, _ = one_gpu.block(CPU, 16, 8, torch.float32, tokens=4, cache=CACHE)
    step = one_gpu._in_turn(sets)
    turns = []
    for _ in range(40):
        with Operands() as operands:
            step()
        turns.append(operands.seen)
    assert not turns[0].keys() & turns[1].keys()
    everything = {place: size for operands in turns for place, size in operands.items()}
    assert sum(everything.values()) >= 2 * CACHE


@pytest.mark.parametrize("dtype", one_gpu.DTYPES)
def test_every_dtype_runs_at_tiny_shapes(dtype: str) -> None:
    metrics = list(one_gpu.efficiencies(CPU, 16, dtype, tokens=4, rounds=1))
    assert [metric.detail["tokens"] for metric in metrics] == [4] * 4
    assert all(metric.value > 0 for metric in metrics)


def test_the_all_reduce_is_modelled_and_says_from_what() -> None:
    metrics = {metric.id: metric for metric in one_gpu.modelled(1024, tokens=1000)}
    nvlink = metrics["gpu.h1024.tp4.modelled-allreduce.nvlink4"]
    assert nvlink.value == pytest.approx(6 * 5e-6 + 1.5 * 2_048_000 / 450e9)
    assert {metric.how for metric in metrics.values()} == {"modelled"}
    assert all(metric.detail["source"] for metric in metrics.values())
