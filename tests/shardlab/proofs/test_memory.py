"""The account of memory against the paper's sums, the model's own parameters and saved tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from pages.ranks import alone
from shardlab.experts.config import ExpertConfig
from shardlab.experts.layer import ExpertLayer
from shardlab.gpt.attention import Attention
from shardlab.gpt.block import Block
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT
from shardlab.layers.init import Init
from shardlab.layers.matmul import fuse
from shardlab.pipeline.action import ScheduleError, computes
from shardlab.pipeline.schedule import interleaved
from shardlab.proofs.formulas import memory
from shardlab.proofs.formulas.memory import Model, Plan, total
from shardlab.proofs.schedules.timeline import peak_live
from tests.docs.page import ROOT

S, B, H, A = 32, 2, 64, 4
ONE = Model(layers=1, hidden=H, heads=A, sequence=S, vocabulary=256)
ONE_LLAMA = dataclasses.replace(ONE, ffn=48, groups=2)
SBH, ASSB = S * B * H, A * S * S * B


def saved_bytes(model: Model = ONE, **plan: Any) -> float:
    """Bytes of a layer's activations alone."""
    llama = (*memory.LLAMA_ATTENTION, *memory.GATED)
    terms = {term.key for term in (*memory.LAYER, *memory.CORE, memory.CHECKPOINT, *llama)}
    lines = memory.account(model, Plan(micro_batch=B, **plan))
    return sum(line.bytes for line in lines if line.key in terms)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_a_layers_activations_sum_to_the_papers_table(t: int) -> None:
    assert saved_bytes(tensor=t) == SBH * (10 + 24 / t) + 5 * ASSB / t
    assert saved_bytes(tensor=t, sequence_parallel=True) == (34 * SBH + 5 * ASSB) / t
    selective = saved_bytes(tensor=t, sequence_parallel=True, recompute="selective")
    assert selective == 34 * SBH / t
    assert saved_bytes(tensor=t, recompute="full") == 2 * SBH


def test_the_first_stage_of_1f1b_holds_all_layers_worth_however_many_stages() -> None:
    model = Model(layers=8, hidden=H, heads=A, sequence=S, vocabulary=256)
    mask = SBH  # after the embedding, once for each live micro-batch
    worth = [
        total(model, Plan(micro_batch=B, stages=p, micro_batches=8), "activation") - p * mask
        for p in (2, 4, 8)
    ]
    assert worth == [8 * (34 * SBH + 5 * ASSB)] * 3
    few = Plan(micro_batch=B, stages=8, micro_batches=2)
    assert total(model, few, "activation") == worth[0] / 4 + 2 * mask


GRIDS = [(p, m, v) for p in (2, 3, 4, 8) for v in (2, 3) for m in (1, 2, p, 2 * p, 5 * p)]


@pytest.mark.parametrize(("p", "m", "v"), GRIDS)
def test_interleaved_as_many_micro_batches_live_as_in_shardlabs_own_schedule(
    p: int, m: int, v: int
) -> None:
    try:
        order = interleaved(p, m, v)[0]
    except ScheduleError:
        pytest.skip("no such schedule")
    first = [action for action in computes(order) if action.chunk == 0]
    live = memory.live_micro_batches(Plan(stages=p, micro_batches=m, chunks=v))
    assert live == (peak_live(order) / v, peak_live(first))


@pytest.mark.parametrize("recompute", memory.RECOMPUTE)
def test_context_ranks_cut_every_activation_and_no_parameter(recompute: str) -> None:
    whole, cut = (Plan(context=c, recompute=recompute) for c in (1, 4))
    assert total(ONE, cut, "activation") == total(ONE, whole, "activation") / 4
    assert total(ONE, cut, "weight") == total(ONE, whole, "weight")
    sharded = Plan(context=4, data=2, zero=1)
    assert total(ONE, sharded, "optimizer") == total(ONE, whole, "optimizer") / 8


def parameters(tensor: int, stages: int, experts: ExpertConfig | None = None, **kind: Any) -> int:
    sizes: dict[str, Any] = {"layers": 4, "hidden": H, "heads": A, "vocab": 256, "sequence": S}
    config = GPTConfig(**sizes, experts=experts, **kind)
    with alone(0, tensor) as world:
        model = GPT(config, tensor=world.whole, stages=stages, device="meta")
        return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("tensor", "stages"), [(1, 1), (2, 1), (4, 2)])
def test_the_parameters_are_those_of_the_models_first_stage(tensor: int, stages: int) -> None:
    model = Model(layers=4, hidden=H, heads=A, sequence=S, vocabulary=256)
    plan = Plan(tensor=tensor, stages=stages, recipe="fp32")
    assert total(model, plan, "weight") == 4 * parameters(tensor, stages)


@pytest.mark.parametrize(("tensor", "stages"), [(1, 1), (2, 1), (2, 2)])
def test_the_parameters_of_a_llama_are_those_of_its_first_stage(tensor: int, stages: int) -> None:
    model = dataclasses.replace(ONE_LLAMA, layers=4)
    plan = Plan(tensor=tensor, stages=stages, recipe="fp32")
    count = parameters(tensor, stages, **LLAMA, ffn=48, kv_heads=2)
    assert total(model, plan, "weight") == 4 * count


def test_the_parameters_of_experts_are_those_of_the_model_and_expert_ranks_share_them() -> None:
    model = Model(layers=4, hidden=H, heads=A, sequence=S, vocabulary=256, experts=8)
    alone_ = Plan(recipe="fp32")
    assert total(model, alone_, "weight") == 4 * parameters(1, 1, ExpertConfig(count=8))
    shared = Plan(tensor=2, data=4, expert=4, recipe="fp32", zero=1)
    of = {plan: {(k, key): n for k, key, n in memory.account(model, plan)}
          for plan in (alone_, shared)}  # fmt: skip
    for key in ("expert-weights", "expert-biases"):
        weight, moments = ("weight", key), ("optimizer", key)
        assert of[shared][weight] == of[alone_][weight] / 4
        assert of[shared][moments] == of[alone_][moments] / 8  # each expert is on 2 of 8 ranks


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 18), (1, 7.5), (2, 4), (3, 2.25)])
def test_a_parameter_costs_what_zeros_stages_leave_of_it(zero: int, bytes_each: float) -> None:
    replica, cut = Plan(), Plan(data=8, zero=zero)
    state = sum(total(ONE, cut, kind) for kind in ("weight", "gradient", "optimizer"))
    assert state == bytes_each * total(ONE, replica, "weight") / 2


def saved_of_experts(hidden: int, top_k: int) -> int:
    """Bytes that autograd really keeps of shardlab's layer of experts; no parameters."""
    experts = ExpertConfig(count=4, top_k=top_k, pre_softmax=top_k == 1)
    config = GPTConfig(
        layers=1, hidden=hidden, heads=A, vocab=256, sequence=S, experts=experts,
        dtype=torch.bfloat16,
    )  # fmt: skip
    init = Init(0, 0.02, torch.bfloat16, "cpu")
    with alone(0, 1) as world:
        layer = ExpertLayer(config, "layers.0.mlp", axis=world.whole, init=init)
        x_sBH = torch.randn(S, B, hidden, dtype=torch.bfloat16, requires_grad=True)
        return count_saved_bytes(layer, x_sBH)


@pytest.mark.parametrize("top_k", [pytest.param(1, marks=pytest.mark.ci), 2])
def test_shardlabs_experts_keep_the_rows_that_the_account_says(top_k: int) -> None:
    """What routing keeps besides, probabilities and places, does not depend on the width.

    Only the router's weight does, which it copies into fp32.
    """

    def counted(hidden: int) -> float:
        sizes = dataclasses.replace(ONE, hidden=hidden, experts=4, top_k=top_k)
        lines = memory.account(sizes, Plan(micro_batch=B))
        terms = {term.key for term in memory.EXPERTS} - {"mlp-mask"}
        return sum(line.bytes for line in lines if line.key in terms)

    narrow, wide = saved_of_experts(H, top_k), saved_of_experts(2 * H, top_k)
    copied = 4 * H * 4
    assert wide - narrow == counted(2 * H) - counted(H) + copied


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
        return count_saved_bytes(block, x_sBH)


def count_saved_bytes(module: torch.nn.Module, x_sBH: torch.Tensor) -> int:
    """Bytes that autograd keeps of one forward: each storage once, no parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    tensors: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if (place := tensor.untyped_storage().data_ptr()) not in parameters:
            tensors[place] = tensor  # alive, so that no other gets its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(x_sBH)
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())


@pytest.mark.parametrize(
    ("ranks", "sequence_parallel", "fused"),
    [(1, False, False), (2, False, False), (2, True, False), (2, True, True)],
)
def test_shardlabs_block_keeps_what_selective_recomputation_would(
    ranks: int, sequence_parallel: bool, fused: bool
) -> None:
    """Its attention is torch's fused one, which never writes the scores out; it drops nothing.

    Beside the paper's tensors it keeps the norms' statistics and the softmax' sums. And the plain
    column linear keeps its gathered input, where Megatron and the fused form gather it again.
    """
    share = ranks if sequence_parallel else 1
    masks = 2 * SBH / share
    statistics = 2 * 2 * (S // share) * B * 2 + A // ranks * S * B * 4
    gathered = 0 if fused or not sequence_parallel else 2 * 2 * SBH * (1 - 1 / ranks)
    selective = saved_bytes(
        tensor=ranks, sequence_parallel=sequence_parallel, recompute="selective"
    )
    expected = selective - masks + statistics + gathered
    assert saved(ranks, sequence_parallel=sequence_parallel, fused=fused) == expected


@pytest.mark.parametrize(
    ("ranks", "sequence_parallel", "fused"),
    [(1, False, False), (2, False, False), (2, True, False), (2, True, True)],
)
def test_shardlabs_llama_block_keeps_what_the_account_says(
    ranks: int, sequence_parallel: bool, fused: bool
) -> None:
    """In fp32. On a CPU torch's RMS norm also keeps the rows before the weight scales them."""
    share = ranks if sequence_parallel else 1
    statistics = 2 * (S // share) * B * 4 + A // ranks * S * B * 4 + 2 * 4 * SBH // share
    gathered = 0 if fused or not sequence_parallel else 2 * 4 * SBH * (1 - 1 / ranks)
    plan = {"tensor": ranks, "sequence_parallel": sequence_parallel, "recompute": "selective"}
    expected = saved_bytes(ONE_LLAMA, recipe="fp32", **plan) + statistics + gathered
    form = {"sequence_parallel": sequence_parallel, "fused": fused, "dtype": torch.float32}
    assert saved(ranks, **form, **LLAMA, ffn=48, kv_heads=2) == expected


def test_a_llamas_layer_keeps_the_sum_of_theory_8() -> None:
    big = Model(layers=1, hidden=4096, heads=32, sequence=1, vocabulary=1, ffn=14336, groups=8)
    lines = memory.account(big, Plan(recompute="selective"))
    terms = {term.key for term in (*memory.LLAMA_ATTENTION, *memory.GATED)} - {"rope-table"}
    in_sbh = sum(line.bytes for line in lines if line.key in terms) / 4096
    assert in_sbh == 12 + 4 / 4 + 8 * 3.5 == 41


THEORY = ("08-memory.md", "08-memory.es.md")
SIZES = {"layers": 1, "hidden": 512, "heads": 8, "vocab": 256, "sequence": 1024}


@pytest.mark.parametrize("page", THEORY)
def test_on_a_cpu_attention_keeps_what_theory_8_says_with_dropout_and_without(page: str) -> None:
    byte_counts = []
    for dropout in (0.1, 0.0):
        config = GPTConfig(**SIZES, dropout=dropout)
        init = Init(0, 0.02, torch.float32, "cpu")
        with alone(0, 1) as world:
            attention = Attention(config, "attention", axis=world.whole, init=init)
            x_sBH = torch.randn(config.sequence, 1, config.hidden, requires_grad=True)
            byte_counts.append(count_saved_bytes(attention, x_sBH))
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
