"""What is counted equals what the algorithm says, whoever carries it."""

from __future__ import annotations

import pytest

from costlab import count_ring
from costlab.count_wire import COUNTER
from shardlab.proofs import formulas
from tests.costlab.tiny_run import counted


def value(name: str) -> float:
    return counted()[f"count.{name}"].value


def test_nothing_counted_has_a_spread_or_a_clock() -> None:
    for metric in counted().values():
        assert metric.id.startswith("count.") and metric.unit != "s"
        assert (metric.low, metric.high) == (None, None)
        wire = metric.id.startswith("count.wire.")
        derived = metric.id.endswith((".formula", ".parameters"))
        assert metric.how == ("measured" if wire else "derived" if derived else "counted")


def test_megatrons_block_asks_for_what_ours_does() -> None:
    for what in ("forward.all_reduce", "backward.all_reduce"):
        assert value(f"block.{what}") == value(f"block-megatron.{what}")
        assert value(f"row.{what}") == value(f"row-megatron.{what}")
        assert value(f"column.{what}") == value(f"column-megatron.{what}")


def test_a_block_counts_what_the_formula_says() -> None:
    sizes = {"tokens": 16, "hidden": 16, "ranks": 2, "itemsize": 4}
    plain = formulas.block(**sizes)
    cut = formulas.block(**sizes, sequence_parallel=True)
    assert value("block.forward.all_reduce") == sum(plain.forward.values())
    assert value("sp.wire-ratio") == cut.wire / plain.wire


def test_bytes_per_operation_fall_as_the_model_widens() -> None:
    narrow, wide = (value(f"tutor.h{hidden}.bytes-per-flop") for hidden in (128, 1024))
    assert narrow == pytest.approx(8 * wide)
    assert value("tutor.h128.all-reduce") == 4 * 128 * 128 * 4


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_ring_sends_what_the_formula_says_and_half_of_it_first(ranks: int) -> None:
    scattered, whole, payload = count_ring.ring(ranks)
    assert whole / payload == pytest.approx(2 * (ranks - 1) / ranks)
    assert 2 * scattered == whole


def test_replicas_reduce_each_bucket_once_and_every_gradient() -> None:
    tutor = counted()["count.ddp.tutor.all_reduce"]
    assert tutor.value == 2
    assert tutor.detail["bytes"] == 3675 * 1024  # the tutor's parameters, in fp32 (lab 01)


def test_a_message_between_stages_is_one_activation() -> None:
    assert value("pipeline.message") == value("tensor.all-reduce") == 8 * 2 * 16 * 4


@pytest.mark.skipif(not COUNTER.is_file(), reason="the loopback counters are Linux's")
@pytest.mark.may_skip
def test_gloo_carries_a_reduce_scatter_as_an_all_reduce_and_ours_does_not() -> None:
    assert value("wire.gloo.all_reduce.n2.sent") == pytest.approx(1, rel=0.02)
    assert value("wire.gloo.n2.halves") == pytest.approx(1, rel=0.04)
    assert value("wire.axis.n2.halves") == pytest.approx(0.5, rel=0.04)
