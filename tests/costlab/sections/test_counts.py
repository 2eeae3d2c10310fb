"""Counts equal the algorithm's numbers, whichever implementation is counted."""

from __future__ import annotations

from itertools import product

import pytest

from costlab.sections.counts import count_all_reduce
from costlab.sections.counts.count_all_reduce import COUNTER
from shardlab.proofs import formulas
from shardlab.proofs.formulas.context import saved_bytes
from tests.costlab.tiny_run import DATASETS, ROOT, count_metrics


def value(name: str) -> float:
    return count_metrics()[f"count.{name}"].value


def test_nothing_counted_has_a_spread_or_a_clock() -> None:
    for metric in count_metrics().values():
        assert metric.id.startswith("count.") and metric.unit != "s"
        assert (metric.low, metric.high) == (None, None)
        wire = metric.id.startswith("count.wire.")
        derived = metric.id.endswith((".formula", ".parameters"))
        how = "modelled" if metric.unit == "tokens" else "derived" if derived else "counted"
        assert metric.how == ("measured" if wire else how)


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
    for name, gathered, whole in (("reshard", 1, 0), ("keep", 0, 1)):
        share = f"fsdp.inference.{name}.gathered-share"
        assert value(share) == value(f"{share}.one-token") == gathered
        assert value(f"fsdp.inference.{name}.held-share") == whole


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
    default = count_metrics()["count.megatron-fsdp-source.default.cut"]
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
    scattered, whole, payload = count_all_reduce.ring(ranks)
    assert whole / payload == pytest.approx(2 * (ranks - 1) / ranks)
    assert 2 * scattered == whole


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_switch_that_adds_sends_less_than_a_ring(ranks: int) -> None:
    sent, payload = count_all_reduce.switch(ranks)
    assert sent == payload < 2 * (ranks - 1) / ranks * payload


def test_replicas_reduce_each_bucket_once_and_every_gradient() -> None:
    tutor = count_metrics()["count.ddp.tutor.all_reduce"]
    assert tutor.value == 2
    assert tutor.detail["bytes"] == 3675 * 1024  # the tutor's parameters, in fp32 (lab 01)


def test_a_message_between_stages_is_one_activation() -> None:
    assert value("pipeline.message") == value("tensor.all-reduce") == 8 * 2 * 16 * 4


def test_megatrons_experts_send_rows_twice_each_way_and_their_weights_apart() -> None:
    for phase in ("forward", "backward"):
        assert value(f"experts-megatron.{phase}.of-all-rows") == 2
        assert value(f"experts-megatron.{phase}.all_to_all") == 3


def test_both_of_megatrons_dispatchers_send_what_the_formulas_say() -> None:
    sizes = {"hidden": 16, "itemsize": 4, "prob": 4, "experts": 4, "ranks": 2}
    for k in (1, 3):
        rows = formulas.all_to_all_experts(sent=16 * k, received=16 * k, **sizes).forward
        sent = value(f"experts-megatron.k{k}.all-to-all.sent")
        # Ours exchanges the counts of rows all to all, 8 bytes an expert; Megatron gathers all.
        assert sent == sum(call.wire * n for call, n in rows.items()) + 4 * 8 / 2
    gathered = 16 * (16 * 4 + 4 * 4 + 4) + 16 * 16 * 4  # rows, weights, a byte of routing; sums
    assert value("experts-megatron.k1.all-gather.sent") == gathered
    assert value("experts-megatron.k3.all-gather.sent") == gathered


def test_megatrons_busiest_rank_computes_its_share_all_of_it_or_up_to_the_capacity() -> None:
    for load, busiest in (("even", 1), ("skewed", 2)):
        for what in ("rows", "of-dense"):
            assert value(f"experts-megatron.{load}.dropless.{what}") == busiest
            assert value(f"experts-megatron.{load}.capacity.{what}") == 1.25
    assert value("experts-megatron.weights-of-active") == 4 / 2


def test_an_auxiliary_loss_evens_out_tokens_that_differ_and_no_others() -> None:
    assert value("balance-megatron.differing.fullest") == pytest.approx(1, abs=0.05)
    assert value("balance-megatron.alike.fullest") == 4 / 2


def test_attention_over_cut_sequences_sends_and_keeps_what_the_formulas_say() -> None:
    for ranks, keys in product((2, 4), (32, 4)):
        sizes = {"tokens": 4 * ranks, "queries": 64, "keys": 2 * keys, "itemsize": 4}
        for kind in ("ring", "all-gather", "ulysses"):
            name = f"context.{kind}.n{ranks}.g{keys}"
            traffic = formulas.context_attention(kind, ranks=ranks, **sizes)
            assert value(f"{name}.sent") == traffic.wire
            if kind != "ulysses":  # which keeps the order of its tokens besides
                assert value(f"{name}.kept") == saved_bytes(ranks=ranks, heads=32, **sizes)


def test_the_slowest_rank_has_nearly_twice_the_mean_and_megatrons_cut_gives_all_the_same() -> None:
    assert (value("context.runs.n2.slowest"), value("context.runs.n8.slowest")) == (1.5, 1.875)
    assert value("context-megatron.n2.slowest") == 1


def test_a_ring_is_hidden_from_as_many_tokens_as_theory_says() -> None:
    page = (ROOT / "docs/theory/06-long-sequences.md").read_text("utf-8")
    for link, rate in (("nvlink", 450e9), ("network", 50e9)):
        for keys in (32, 2):
            tokens = value(f"context.hidden-from.{link}.g{keys}.tokens")
            assert tokens == pytest.approx(2 * keys / 32 * 989e12 / rate)
        assert f"{value(f'context.hidden-from.{link}.g32.tokens'):,.0f}" in page


def test_zero_bubble_leaves_what_the_formula_says_and_holds_as_much_on_every_stage() -> None:
    assert value("zb-h1.p4.m8.bubble") == pytest.approx(3 / (8 * 3 + 3))
    assert value("zb-h1.p4.m8.idle-of-1f1b") == pytest.approx(1 / 3)
    layer = count_metrics()["count.zb-h1.layer-megatron.idle-of-1f1b"]
    forward, inputs, weights = (float(layer.detail[of]) for of in ("forward", "inputs", "weights"))
    # The tutor's layer: 24·H² a token in its linears, 4·S·H in attention, S = H.
    assert (inputs - weights) / (forward - weights) == 2 and weights / (forward - weights) == 6
    waits = (forward + inputs - weights) / (forward + inputs + weights)
    assert layer.value == pytest.approx(waits)
    for schedule, last in (("1f1b", 1), ("zb-h1", 4)):
        assert value(f"{schedule}.p4.m8.live-fullest") == 4
        assert value(f"{schedule}.p4.m8.live-last") == last


def test_zbv_as_pytorch_plans_it_idles_only_until_its_stages_begin_and_after_they_end() -> None:
    assert value("torch-zbv.p4.m8.ticks-idle-within") == 0
    assert value("torch-zbv.p4.m8.bubble") == pytest.approx(3 / (2 * 3 * 8 + 3))


def test_interleaving_halves_the_waits_and_megatrons_outer_stages_send_more_than_twice() -> None:
    assert value("interleaved.p4.m8.idle-of-1f1b") == pytest.approx(1 / 2)
    name = "interleaved-megatron.p4.m8.{}.messages-of-1f1b"
    assert value(name.format("inner-stage")) == 2
    assert value(name.format("all-stages")) == pytest.approx((2 * 4 - 1) / (4 - 1))


@pytest.mark.skipif(not DATASETS, reason="megatron-core's wheel has no C++ here")
def test_megatrons_ranks_build_on_one_disk_and_not_on_two_nor_on_a_full_one() -> None:
    for disk, done, waiting_barriers in (
        ("one-disk", 2, 0),
        ("two-disks", 1, 0),
        ("full-disk", 0, 1),
    ):
        assert value(f"datasets-megatron.{disk}.ranks-done") == done
        assert value(f"datasets-megatron.{disk}.barriers-apart") == waiting_barriers


@pytest.mark.skipif(not COUNTER.is_file(), reason="the count of bytes written is Linux's")
@pytest.mark.may_skip
def test_gloo_carries_a_reduce_scatter_as_an_all_reduce_and_ours_does_not() -> None:
    assert value("wire.gloo.all_reduce.n2.sent") == pytest.approx(1, rel=0.001)
    assert value("wire.gloo.all_reduce.n4.sent") == pytest.approx(1.5, rel=0.001)
    assert value("wire.gloo.n2.halves") == pytest.approx(1, rel=0.001)
    assert value("wire.axis.n2.halves") == pytest.approx(0.5, rel=0.001)
