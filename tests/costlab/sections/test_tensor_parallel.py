"""The parts of a tensor-parallel step, and the metrics computed from given times."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import torch

from costlab.implementations import tp as contestants
from costlab.implementations import tutor
from costlab.implementations.rounds import Rounds
from costlab.implementations.tp import Task
from costlab.record.names import parse
from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.record.statistics import over_launches
from costlab.sections import tensor_parallel
from costlab.sections.breakdown import Products, replay, watched
from costlab.sections.metrics import ratio
from costlab.sections.tp_metrics import PARTS, crossover
from shardlab.comm import Axis, World
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

CPU = torch.device("cpu")
HIDDEN = 16
CROSSOVER = parse("tp.crossover.shardlab.gloo")
TOKENS = tutor.BATCH * tutor.SEQUENCE
WEIGHTS = tutor.LAYERS * 12 * HIDDEN**2 + tutor.VOCAB * HIDDEN
TIMES = {
    "one": [4.0, 4.0, 4.0], "gloo": [2.0, 2.0, 8.0], "shared-memory": [1.0, 1.0, 1.0],
    "megatron-core": [4.0, 4.0, 4.0], "matmul": [0.5] * 3, "matmul-whole": [0.8] * 3,
    "latency": [0.1] * 3, "communication": [0.4] * 3, "launch": [0.2] * 3,
}  # fmt: skip


def make_task() -> Task:
    return Task(tutor.config(HIDDEN), *tutor.batch(CPU), CPU)


def count_flops(products: Products) -> int:
    """Return the operations of products, 2·m·k·n each; attention's have four dimensions."""
    total = 0
    for _, args, _ in products.calls:
        first, second = [x for x in args if isinstance(x, torch.Tensor)][-2:]
        total += 2 * first.numel() * second.shape[-1] * (first.dim() < 4)
    return total


def test_a_steps_matrix_work_is_six_operations_a_weight_and_token() -> None:
    products, entries = watched(contestants.ours(make_task(), Axis.alone()))
    assert count_flops(products) == 6 * TOKENS * WEIGHTS
    assert not entries


@on_ranks(2)
def test_a_ranks_parts_are_half_the_products_and_all_of_the_collectives(world: World) -> None:
    axis = world.whole
    products, entries = watched(contestants.ours(make_task(), axis))
    with Ledger() as again:
        replay(axis, entries, CPU)()
    with Ledger() as brief:
        replay(axis, entries, CPU, elements=1)()
    with Ledger() as tiny:
        contestants.ours(tensor_parallel.tiny(CPU), axis)()
    parts = {
        "flops": count_flops(products),
        "step": Counter((e.op, e.payload) for e in entries),
        "again": Counter((e.op, e.payload) for e in again.entries),
        "brief": Counter((e.op, e.payload) for e in brief.entries),
        "tiny": Counter(e.op for e in tiny.entries),
    }
    assert parts["flops"] == 3 * TOKENS * WEIGHTS
    assert parts["again"] == parts["step"]
    operations = Counter(op for op, _ in parts["step"].elements())
    assert parts["brief"] == {
        ("all_reduce", 4): operations["all_reduce"], ("all_gather", 8): 1
    }  # fmt: skip
    assert parts["tiny"] == operations


def measure_section(world: World, settings: Settings) -> list[Metric]:
    """Measure two rounds of a model with one layer and few tokens."""
    brief = Rounds(seconds=0, least=2, most=2, warmup=0)
    with (
        patch.object(tensor_parallel, "rounds", lambda *_, **__: brief),
        patch.multiple(tutor, LAYERS=1, BATCH=1, SEQUENCE=8, VOCAB=16),
    ):
        return [m for m in tensor_parallel.measure(world, settings) if isinstance(m, Metric)]


def test_every_size_has_its_steps_ratios_and_parts(pool: Any) -> None:
    first_rank, second_rank = pool(2).run(measure_section, Settings(hidden=(8, HIDDEN)))
    assert [metric.id for metric in first_rank] == [metric.id for metric in second_rank]
    first_rank += tensor_parallel.derive(index_by_id(first_rank))
    names = [metric.id for metric in first_rank]
    assert len(set(names)) == len(names)
    ours = "shardlab.gloo"
    contestants = (
        "shardlab.one", ours, "shardlab.shared-memory", "megatron-core.gloo", "torch-dtensor.gloo",
        "shardlab.one-all-cores",
    )  # fmt: skip
    for hidden in (8, HIDDEN):
        wanted = {
            *(f"step.{name}" for name in contestants),
            *(
                f"{kind}.{link}"
                for kind in ("speedup", "slowdown", "speedup-over-threads")
                for link in contestants[1:3]
            ),
            "speedup-of-threads.shardlab",
            *(f"ratio.shardlab.{name}" for name in contestants[3:5]),
            *(f"{kind}.{part}.{ours}" for kind in ("part", "share") for part in PARTS),
        }
        assert {f"tp.h{hidden}.{name}" for name in wanted} <= set(names)
    assert {f"tp.crossover.{link}.exists" for link in contestants[1:3]} <= set(names)
    how = {metric.id: metric.how for metric in first_rank}
    assert [how[f"tp.h8.part.{part}.{ours}"] for part in PARTS] == [
        "measured", "measured", "derived", "measured", "derived",
    ]  # fmt: skip
    assert all(metric.value > 0 for metric in first_rank if ".step." in metric.id)


@pytest.mark.ci
def test_a_later_launch_measures_the_short_steps_alone(pool: Any) -> None:
    settings = Settings(hidden=(8, HIDDEN))
    assert tensor_parallel.launches(settings) == 3
    with patch.dict(tensor_parallel.REPEATED, quick=4):
        assert tensor_parallel.launches(settings) == 1
    metrics = pool(2).run(measure_second_launch, settings)[0]
    assert {metric.id.split(".")[1] for metric in metrics} == {"h8"}


def measure_second_launch(world: World, settings: Settings) -> list[Metric]:
    with patch.dict(tensor_parallel.REPEATED, quick=8):
        return measure_section(world, msgspec.structs.replace(settings, launch=1))


def index_by_id(metrics: Iterable[Metric]) -> dict[str, Metric]:
    return {metric.id: metric for metric in metrics}


def test_a_speedup_is_one_process_over_the_ranks_and_a_slowdown_its_inverse() -> None:
    metrics = index_by_id(tensor_parallel.metrics(128, TIMES, 2))
    assert metrics["tp.h128.speedup.shardlab.gloo"].value == pytest.approx(2.0)
    assert metrics["tp.h128.slowdown.shardlab.gloo"].value == pytest.approx(0.5)
    assert metrics["tp.h128.ratio.shardlab.megatron-core.gloo"].value == pytest.approx(0.5)
    assert metrics["tp.h128.speedup.shardlab.gloo"].low == pytest.approx(0.5)  # the disturbed round


def test_the_parts_of_several_launches_add_up_to_the_step() -> None:
    launches = []
    for factor in (0.5, 1.0, 4.0):
        times = {name: [factor * second for second in TIMES[name]] for name in TIMES}
        times["matmul"] = TIMES["matmul"]
        launches.append(index_by_id(tensor_parallel.metrics(128, times, 2)))
    metrics = {name: over_launches([launch[name] for launch in launches]) for name in launches[0]}
    metrics |= index_by_id(tensor_parallel.derive(metrics))
    parts = {part: metrics[f"tp.h128.part.{part}.shardlab.gloo"].value for part in PARTS}
    assert parts == pytest.approx(
        {"matmul": 0.5, "latency": 0.1, "volume": 0.3, "launch": 0.2, "other": 0.9}
    )
    assert sum(
        metrics[f"tp.h128.share.{part}.shardlab.gloo"].value for part in PARTS
    ) == pytest.approx(1)
    assert metrics["tp.h128.cut-efficiency.shardlab.gloo"].value == pytest.approx(0.8)


def test_four_ranks_have_ids_of_their_own() -> None:
    assert all(metric.id.endswith(".tp4") for metric in tensor_parallel.metrics(128, TIMES, 4))


@pytest.mark.parametrize(
    ("speedups", "place", "words"),
    [
        ({64: 0.5, 128: 0.5, 512: 2.0}, 256.0, "crosses"),
        ({64: 1.2, 128: 0.5, 512: 2.0}, 256.0, "crosses"),  # a small size that was disturbed
        ({64: 1.5, 128: 1.7}, None, "faster everywhere"),
        ({64: 0.5, 128: 0.7}, None, "slower everywhere"),
    ],
)
def test_the_crossover_lies_between_the_logarithms_of_the_sizes(
    speedups: dict[int, float], place: float | None, words: str
) -> None:
    metrics = index_by_id(
        crossover(CROSSOVER, {h: make_speedup(h, [value]) for h, value in speedups.items()})
    )
    exists = metrics["tp.crossover.shardlab.gloo.exists"]
    assert (exists.value, exists.detail["found"]) == (float(place is not None), words)
    assert (place is None) == ("tp.crossover.shardlab.gloo" not in metrics)
    if place is not None:
        assert metrics["tp.crossover.shardlab.gloo"].value == pytest.approx(place)


def make_speedup(hidden: int, *launches: list[float]) -> Metric:
    metrics = [
        ratio(parse(f"tp.h{hidden}.speedup.shardlab.gloo"), rounds, [1.0] * len(rounds))
        for rounds in launches
    ]
    return over_launches(metrics)


def test_a_crossing_has_the_interval_of_its_rounds_drawn_anew() -> None:
    """Of rounds that differ by 10 %, where the curve rises by the square root of two an octave."""
    draw = random.Random(1)
    true = {hidden: (hidden / 200) ** 0.5 for hidden in (64, 128, 256, 512)}
    widths = []
    for rounds in (9, 100):
        speedups = {
            hidden: make_speedup(
                hidden,
                *([metric * draw.lognormvariate(0, 0.1) for _ in range(rounds)] for _ in "123"),
            )
            for hidden, metric in true.items()
        }
        (crossing,) = [
            metric for metric in crossover(CROSSOVER, speedups) if metric.unit == "hidden"
        ]
        assert crossing.low is not None and crossing.high is not None
        assert crossing.low <= crossing.value <= crossing.high
        assert crossing.low < 200 < crossing.high
        assert crossing.samples == 4 * 3 * rounds
        assert crossing == next(
            metric for metric in crossover(CROSSOVER, speedups) if metric.unit == "hidden"
        )
        widths.append(crossing.high / crossing.low)
    assert 1 < widths[1] < widths[0] < 1.6


def test_a_crossing_that_rounds_do_not_agree_on_reaches_to_the_last_size() -> None:
    speedups = {64: make_speedup(64, [0.5, 0.6, 0.4]), 128: make_speedup(128, [0.5, 1.1, 1.4])}
    (crossing,) = [metric for metric in crossover(CROSSOVER, speedups) if metric.unit == "hidden"]
    assert crossing.high == 128
    assert 0 < float(crossing.detail["beyond"]) < 1


def test_without_its_rounds_a_crossing_has_no_interval() -> None:
    bare = {
        h: msgspec.structs.replace(make_speedup(h, [r]), series=[])
        for h, r in ((64, 0.5), (128, 2))
    }
    (crossing,) = [metric for metric in crossover(CROSSOVER, bare) if metric.unit == "hidden"]
    assert (crossing.low, crossing.high) == (None, None)


@pytest.mark.parametrize(("places", "ranks"), [(2, (2,)), (3, (2,)), (4, (2, 4))])
def test_four_ranks_are_measured_where_each_has_a_core(
    places: int, ranks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores: Callable[[], int] = lambda: places  # noqa: E731
    monkeypatch.setattr(tensor_parallel, "count_cores", cores)
    assert ranks == tensor_parallel.ranks(Settings())
