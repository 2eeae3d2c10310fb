"""The account of memory against the paper's sums, and what shardlab's layers really save."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch

from costlab.layouts import memory
from costlab.layouts.model import RECOMPUTE, Model, Plan
from pages.ranks import alone
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertLayer
from shardlab.gpt.attention import Attention
from shardlab.gpt.block import Block
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.layers.init import Init
from shardlab.layers.matmul import fuse
from shardlab.pipeline.action import ScheduleError
from shardlab.pipeline.schedule import by_name, interleaved
from shardlab.proofs.schedules.timeline import peak_live
from tests.costlab.layouts.test_memory_counted import saved_bytes as kept_bytes
from tests.docs.page import ROOT
from tests.docs.theory.account import (
    MEGATRON,
    SHARDLAB,
    count_layer,
    count_state,
    make_gpt,
    make_plan,
)

S, B, H, A = 32, 2, 64, 4
ONE = make_gpt(hidden=H, heads=A, vocabulary=256)
GATED: dict[str, Any] = {"gated": True, "norm": "rms", "bias": False, "dropout": False}
SBH, ASSB = S * B * H, A * S * S * B


def saved_bytes(model: Model = ONE, program: Plan = MEGATRON, **plan: Any) -> float:
    """Bytes of a layer's activations alone."""
    return count_layer(model, make_plan(program, sequence=S, micro_batch=B, **plan))


@pytest.mark.parametrize("t", [1, 2, 4])
def test_a_layers_activations_sum_to_the_papers_table(t: int) -> None:
    assert saved_bytes(tensor=t) == SBH * (10 + 24 / t) + 5 * ASSB / t
    assert saved_bytes(tensor=t, sequence_parallel=True) == (34 * SBH + 5 * ASSB) / t
    selective = saved_bytes(tensor=t, sequence_parallel=True, recompute="selective")
    assert selective == 34 * SBH / t
    assert saved_bytes(tensor=t, recompute="full") == 2 * SBH


def test_the_first_stage_of_1f1b_holds_all_layers_worth_however_many_stages() -> None:
    model = dataclasses.replace(ONE, layers=8)
    once = SBH + 8 * S * B  # a mask after the embedding, and the tokens, of each live micro-batch
    statistics = 2 * 2 * S * B * 4  # of a layer's norms

    def count_first(p: int, m: int) -> float:
        plan = make_plan(sequence=S, micro_batch=B, stages=p, micro_batches=m)
        return memory.rank_bytes(model, plan, 0)["activations"]

    worth = [count_first(p, 8) - p * once for p in (2, 4, 8)]
    assert worth == [8 * (34 * SBH + 5 * ASSB + statistics)] * 3
    assert count_first(8, 2) == worth[0] / 4 + 2 * once


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_on_every_stage_as_many_micro_batches_live_as_in_shardlabs_own_schedule(p: int) -> None:
    schedules = 0
    for v, m in product((1, 2, 3), (1, 2, p, 2 * p, 5 * p)):
        try:
            orders = interleaved(p, m, v) if v > 1 else by_name("1f1b", p, m)
        except ScheduleError:
            continue
        schedules += 1
        plan = make_plan(stages=p, micro_batches=m, chunks=v)
        for stage, order in enumerate(orders):
            assert memory.live_pieces(plan, stage) == peak_live(order) / v, (v, m, stage)
    assert schedules > 9


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_context_ranks_cut_every_activation_and_no_parameter(recompute: str) -> None:
    whole, cut = (make_plan(context=c, recompute=recompute) for c in (1, 4))
    one, quarter = (memory.rank_bytes(ONE, plan, 0) for plan in (whole, cut))
    assert quarter["activations"] == one["activations"] / 4
    assert quarter["weights"] == one["weights"]
    sharded = make_plan(context=4, data=2, zero=1)
    assert memory.rank_bytes(ONE, sharded, 0)["optimizer"] == one["optimizer"] / 8


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 18), (1, 7.5), (2, 4), (3, 2.25)])
def test_a_parameter_costs_what_zeros_stages_leave_of_it(zero: int, bytes_each: float) -> None:
    parameters = sum(memory.parameters(ONE, make_plan(), 0))
    assert count_state(ONE, make_plan(data=8, zero=zero)) == bytes_each * parameters


def saved_of_experts(hidden: int, top_k: int) -> int:
    """Bytes that autograd really keeps of shardlab's layer of experts; no parameters."""
    experts = ExpertConfig(count=4, top_k=top_k, pre_softmax=top_k == 1)
    sizes: dict[str, int] = {"layers": 1, "hidden": hidden, "heads": A, "vocab": 256, "sequence": S}
    config = GPTConfig(**sizes, experts=experts)
    init = Init(0, 0.02, torch.float32, "cpu")
    with alone(0, 1) as world:
        layer = ExpertLayer(config, "layers.0.mlp", axis=world.whole, init=init)
        x_sBH = torch.randn(S, B, hidden, requires_grad=True)
        return kept_bytes(layer, lambda: layer(x_sBH))


@pytest.mark.parametrize("top_k", [pytest.param(1, marks=pytest.mark.ci), 2])
def test_shardlabs_experts_keep_the_rows_that_the_account_says(top_k: int) -> None:
    """What routing keeps besides, probabilities and places, does not depend on the width."""

    def counted(hidden: int) -> float:
        sizes = make_gpt(hidden=hidden, heads=A, experts=4, top_k=top_k)
        dense = dataclasses.replace(sizes, experts=0)
        network = 4 * S * B * 9 * hidden  # the inputs of fc1, GELU and fc2
        return saved_bytes(sizes, SHARDLAB) - saved_bytes(dense, SHARDLAB) + network

    narrow, wide = saved_of_experts(H, top_k), saved_of_experts(2 * H, top_k)
    assert wide - narrow == counted(2 * H) - counted(H)


def saved(
    ranks: int, *, sequence_parallel: bool, fused: bool, dtype: torch.dtype = torch.bfloat16,
    **kind: Any,
) -> int:  # fmt: skip
    """Bytes that autograd really keeps of shardlab's block: each storage once, no parameters."""
    sizes: dict[str, int] = {"layers": 1, "hidden": H, "heads": A, "vocab": 256, "sequence": S}
    config = GPTConfig(**sizes, **kind, dtype=dtype)
    with alone(0, ranks) as world:
        block = Block(
            config, "layers.0", axis=world.whole, sequence_parallel=sequence_parallel,
            init=Init(0, 0.02, dtype, "cpu"),
        )  # fmt: skip
        if fused:
            fuse(block)
        rows = S // ranks if sequence_parallel else S
        x_sBH = torch.randn(rows, B, H, dtype=dtype, requires_grad=True)
        return kept_bytes(block, lambda: block(x_sBH))


CUTS = [(1, False, False), (2, False, False), (2, True, False), (2, True, True)]


@pytest.mark.parametrize(("ranks", "sequence_parallel", "fused"), CUTS)
@pytest.mark.parametrize("kind", ["GPT", "Llama"])
def test_shardlabs_block_keeps_what_the_account_says(
    kind: str, ranks: int, sequence_parallel: bool, fused: bool
) -> None:
    """Norms keep their statistics in the block's dtype, and fused attention a sum for each row.

    The plain column linear keeps its gathered input; the fused form gathers it again. On a CPU
    torch's RMS norm also keeps the rows before the weight scales them, and rope keeps its table.
    """
    llama = kind == "Llama"
    program, width = (SHARDLAB, 4) if llama else (MEGATRON, 2)
    rows, gathered = S // (ranks if sequence_parallel else 1) * B, sequence_parallel and not fused
    statistics = 2 * (1 if llama else 2) * rows * width + A // ranks * S * B * 4
    statistics += (2 * 4 * rows * H + S * (H // A) * 4) * llama
    plan: dict[str, Any] = {"tensor": ranks, "sequence_parallel": sequence_parallel}
    gated = GATED | {"ffn": 48, "kv_heads": 2}
    model = dataclasses.replace(ONE, **(gated if llama else {"dropout": False}))
    expected = statistics + saved_bytes(model, program, attention="fused",
                                        gathered_inputs=gathered, **plan)  # fmt: skip
    form: dict[str, Any] = {"sequence_parallel": sequence_parallel, "fused": fused}
    form |= {"dtype": torch.float32, **LLAMA, "ffn": 48, "kv_heads": 2} if llama else {}
    assert saved(ranks, **form) == expected


def test_a_llamas_layer_keeps_the_sum_of_theory_8() -> None:
    big = make_gpt(hidden=4096, heads=32, ffn=14336, kv_heads=8, **GATED)
    in_sbh = count_layer(big, make_plan(sequence=1, attention="fused")) / 4096
    assert in_sbh == 12 + 4 / 4 + 8 * 3.5 == 41


THEORY = ("08-memory.md", "08-memory.es.md")
SIZES = {"layers": 1, "hidden": 512, "heads": 8, "vocab": 256, "sequence": 1024}


@cache
def count_saved_by_attention(dropout: float) -> int:
    config = GPTConfig(**SIZES, dropout=dropout)
    with alone(0, 1) as world:
        init = Init(0, 0.02, torch.float32, "cpu")
        attention = Attention(config, "attention", axis=world.whole, init=init)
        x_sBH = torch.randn(config.sequence, 1, config.hidden, requires_grad=True)
        return kept_bytes(attention, lambda: attention(x_sBH))


@pytest.mark.parametrize("page", THEORY)
def test_on_a_cpu_attention_keeps_what_theory_8_says_with_dropout_and_without(page: str) -> None:
    config = GPTConfig(**SIZES)
    byte_counts = [count_saved_by_attention(dropout) for dropout in (0.1, 0.0)]
    sbh, assb = config.sequence * config.hidden, config.heads * config.sequence**2
    sums = config.heads * config.sequence * 4  # one a row of the softmax
    assert byte_counts == [4 * (7 * sbh + 3 * assb), 4 * 5 * sbh + sums]
    text = " ".join((ROOT / "docs/theory" / page).read_text("utf-8").split())
    sizes = [f"{count / 2**20:.0f} MiB" for count in byte_counts]
    formulas = ["4 · (7sbh + 3as²b)", "4 · 5sbh"]
    assert [words for words in (*sizes, *formulas) if words not in text] == []


@pytest.mark.parametrize("page", THEORY)
def test_recomputing_the_core_costs_as_little_as_theory_8_says(page: str) -> None:
    hidden, sequence = 12288, 2048
    core = 4 * sequence * hidden  # operations a token: scores, and their sums of values
    forward = 2 * 12 * hidden**2 + core
    assert core / forward == pytest.approx(sequence / (6 * hidden + sequence))
    assert f"{core / forward:.1%}".replace("%", " %") in (
        (ROOT / "docs/theory" / page).read_text("utf-8").replace("\N{NO-BREAK SPACE}", " ")
    )
    step = 3 * forward  # a backward costs two forwards
    assert core / step < 0.01
