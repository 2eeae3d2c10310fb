"""Collectives: every point is measured and verified, and is as slow as the slowest rank."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from costlab.record.names import call
from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.run import launch
from costlab.run.launch import LaunchError
from costlab.sections import device_clock
from costlab.sections.collectives import collectives, operations, point
from costlab.sections.collectives.operations import OPERATIONS
from shardlab.comm import World

SIZES = (1 << 10, 12 << 10, 1 << 16)
QUICK = Settings(sizes=SIZES)


def measure_quickly(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Run the section with as few calls as possible."""
    collectives.BUDGET["quick"] = 0.0  # in this rank's process alone, as is the next line
    point.SMALL = point.MIDDLING = 0  # all sizes are called as seldom as the largest ones
    yield from collectives.measure(world, settings)


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    return {m.id: m for m in launch.run(measure_quickly, QUICK, ranks=2)}


def test_every_operation_link_size_and_mode_is_there(metrics: dict[str, Metric]) -> None:
    wanted = {
        call(link, operation, 2, size, mode).id
        for link in ("gloo", "shared-memory")
        for operation in OPERATIONS
        for mode in ("blocking", "back-to-back")
        for size in SIZES
    }
    assert metrics.keys() == wanted


def test_speeds_are_size_over_time(metrics: dict[str, Metric]) -> None:
    for metric in metrics.values():
        name = metric.name
        factor = float(OPERATIONS[name.operation].bus_factor(2))
        assert metric.detail["algbw"] == pytest.approx(name.size / metric.value)
        assert metric.detail["busbw"] == pytest.approx(name.size / metric.value * factor)
        assert metric.detail["verified"] is True
        assert metric.low is not None and metric.high is not None
        assert metric.low <= metric.value <= metric.high <= metric.detail["p95"]


def measure_wrong_results(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Run the section over a link that gives one rank a wrong result of one operation."""
    true = operations.calls

    def calls(world: World, link: str) -> dict[str, object]:
        def all_to_all(x: torch.Tensor, y: torch.Tensor) -> None:
            true(world, link)["all_to_all"](x, y)
            if world.rank == 1 and len(y) == SIZES[1] // 4:
                y[len(y) // 2] += 1

        return {**true(world, link), "all_to_all": all_to_all}

    operations.calls = calls  # type: ignore[assignment]
    yield from measure_quickly(world, settings)


def test_a_wrong_result_ends_the_run_with_rank_operation_and_size() -> None:
    with pytest.raises(
        LaunchError, match=r"rank 1 raised .*all_to_all of 12288 bytes over gloo: 1 of"
    ):
        list(launch.run(measure_wrong_results, QUICK, ranks=2))


def measure_with_slow_rank(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Run the section with one core, and a clock on rank 1 that adds a second to each call."""
    true = time.perf_counter
    readings = 0

    def clock() -> float:
        nonlocal readings
        readings += 1
        return true() + readings * (world.rank == 1)

    time.perf_counter = clock
    collectives.cores = lambda: 1
    yield from measure_quickly(world, Settings(sizes=SIZES[:1], seed=settings.seed))


def test_a_call_takes_as_long_as_its_slowest_rank_and_more_ranks_than_cores_are_flagged(
    metrics: dict[str, Metric],
) -> None:
    slow = {m.id: m for m in launch.run(measure_with_slow_rank, QUICK, ranks=2)}
    blocking = slow[call("gloo", "all_reduce", 2, SIZES[0], "blocking").id]
    assert 1.0 <= blocking.value < 1.5
    assert 0.5 < blocking.detail["skew"] < 1.5
    assert 0 < slow[call("gloo", "all_reduce", 2, SIZES[0], "back-to-back").id].value < 1.5
    assert all(m.detail["oversubscribed"] for m in slow.values())
    if collectives.cores() >= 2:
        assert not any(m.detail["oversubscribed"] for m in metrics.values())


def test_enqueued_calls_are_timed_together_over_rotating_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device's clock says 40 s for all twenty."""
    world: Any = SimpleNamespace(size=2, rank=0, device=torch.device("cpu"))
    addresses: list[int] = []
    call = {"all_reduce": lambda x, _: addresses.append(x.data_ptr())}
    monkeypatch.setattr(operations, "calls", lambda *_: call)
    monkeypatch.setattr(operations, "starts", lambda *_: call)
    monkeypatch.setattr(device_clock, "seconds", lambda _, queue: queue() or 40.0)
    operation = OPERATIONS["all_reduce"]
    buffers = point.Buffers(1024, world.device)
    points, _ = point.points_of(world, "nccl", operation, 1024, buffers)
    (queued,) = (point for point in points if point.mode == "enqueued")
    assert queued.step(0) == 2.0
    assert len(addresses) == 20
    assert len(set(addresses)) > 1


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_small_calls_are_enqueued_on_a_gpu_and_nowhere_else(profile: Any) -> None:
    def queued(device: str) -> list[int]:
        modes = {
            size: collectives._modes(
                OPERATIONS["all_reduce"], size, Settings(profile=profile), torch.device(device)
            )
            for size in collectives.SIZES[profile]
        }
        assert all(modes_of_size[0] == "blocking" for modes_of_size in modes.values())
        return [size for size, modes_of_size in modes.items() if "enqueued" in modes_of_size]

    assert queued("cpu") == []
    assert (min(queued("cuda")), max(queued("cuda"))) == (1 << 10, 1 << 20)
