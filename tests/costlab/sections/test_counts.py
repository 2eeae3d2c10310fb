"""What is counted equals what the algorithm says, whoever carries it."""

from __future__ import annotations

import pytest

from costlab.sections.counts import count_ring
from costlab.sections.counts.count_wire import COUNTER
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


def test_megatrons_layers_ask_for_what_ours_do() -> None:
    for what in ("forward.all_reduce", "backward.all_reduce"):
        for layer in ("block", "ffn", "row", "row-sp", "column"):
            assert value(f"{layer}.{what}") == value(f"{layer}-megatron.{what}")
    assert value("sp-megatron.wire-ratio") == value("sp.wire-ratio")
    for what in ("tp", "sp"):
        reduced = value(f"{what}-megatron.gradients.all_reduce")
        assert reduced == value(f"{what}.gradients.all_reduce")


def test_megatron_gathers_for_weight_gradients_only_under_sequence_parallelism() -> None:
    assert value("tp-megatron.weight-gradients.collectives") == 0
    assert value("sp-megatron.weight-gradients.collectives") == 1


def test_an_experts_row_parallel_linear_reduces_nothing() -> None:
    assert value("row-expert-megatron.forward.all_reduce") == 0


def test_pytorchs_sharding_asks_for_half_as_much_again_as_its_ddp_if_all_lies_in_units() -> None:
    for version in ("fsdp1", "fsdp2"):
        assert value(f"{version}.units.wire-ratio") == value("fsdp.units.wire-ratio") == 1.5
        assert value(f"{version}.root.wire-ratio") == value("fsdp.root.wire-ratio") == 1.375


def test_inference_gathers_a_resharded_model_again_for_one_token_as_for_many() -> None:
    for name, gathered, held in (("reshard", 1, 0), ("keep", 0, 1)):
        share = f"fsdp.inference.{name}.gathered-share"
        assert value(share) == value(f"{share}.one-token") == gathered
        assert value(f"fsdp.inference.{name}.held-share") == held


def test_real_schedulers_ran_in_the_order_that_the_theory_says() -> None:
    for microbatches in (4, 8):
        for scheduler in ("torch-gpipe", "torch-1f1b", "megatron-1f1b"):
            where = f"{scheduler}.p4.m{microbatches}"
            assert value(f"{where}.bubble") == pytest.approx(3 / (microbatches + 3))
            live = microbatches if "gpipe" in scheduler else 4
            assert value(f"{where}.live") == live


def test_two_stages_of_megatrons_pass_on_what_its_tensor_ranks_reduce_and_a_part_if_it_is_cut() -> (
    None
):
    assert value("tp-pp-megatron.message") == value("tp-pp-megatron.all_reduce") == 8 * 2 * 16 * 4
    assert value("tp-sp-pp-megatron.message") == value("tp-sp-pp-megatron.reduce_scatter") / 2


def test_the_installed_sources_are_asked_for_their_defaults_and_names() -> None:
    assert value("fsdp-source.backward-prefetch-on") == 1
    assert value("fsdp-source.forward-prefetch-on") == 0
    cut = {name: value(f"megatron-fsdp-source.{name}.cut")
           for name in ("no-shard", "optim", "optim-grads", "optim-grads-params")}  # fmt: skip
    assert list(cut.values()) == [0, 1, 2, 3]
    default = counted()["count.megatron-fsdp-source.default.cut"]
    assert (default.value, default.detail["strategy"]) == (0, "no_shard")
    for name in ("dp-cp-ag-group", "expt-dp-ag-group", "for-expert-parallelism"):
        assert value(f"megatron-source.{name}") == 0
    assert value("megatron-source.create-all-gather-group") > 0


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


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_switch_that_adds_sends_less_than_a_ring(ranks: int) -> None:
    sent, payload = count_ring.switch(ranks)
    assert sent == payload < 2 * (ranks - 1) / ranks * payload


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
    assert value("wire.gloo.all_reduce.n4.sent") == pytest.approx(1.5, rel=0.02)
    assert value("wire.gloo.n2.halves") == pytest.approx(1, rel=0.04)
    assert value("wire.axis.n2.halves") == pytest.approx(0.5, rel=0.04)
