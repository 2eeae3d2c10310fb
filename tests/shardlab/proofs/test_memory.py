"""The account of memory against the paper's sums, the model's own parameters and saved tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.layers.init import Init
from shardlab.layers.matmul import fuse
from shardlab.proofs.formulas import memory
from shardlab.proofs.formulas.memory import Model, Plan, total
from tests.shardlab.fake_world import alone

S, B, H, A = 32, 2, 64, 4
ONE = Model(layers=1, hidden=H, heads=A, sequence=S, vocabulary=256)
SBH, ASSB = S * B * H, A * S * S * B


def kept(**plan: Any) -> float:
    """Bytes of a layer's activations alone."""
    terms = {term.key for term in (*memory.LAYER, *memory.CORE, memory.CHECKPOINT)}
    lines = memory.account(ONE, Plan(micro_batch=B, **plan))
    return sum(line.bytes for line in lines if line.key in terms)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_a_layers_activations_sum_to_the_papers_table(t: int) -> None:
    assert kept(tensor=t) == SBH * (10 + 24 / t) + 5 * ASSB / t
    assert kept(tensor=t, sequence_parallel=True) == (34 * SBH + 5 * ASSB) / t
    selective = kept(tensor=t, sequence_parallel=True, recompute="selective")
    assert selective == 34 * SBH / t
    assert kept(tensor=t, recompute="full") == 2 * SBH


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


def parameters(tensor: int, stages: int) -> int:
    config = GPTConfig(layers=4, hidden=H, heads=A, vocab=256, sequence=S)
    with alone(0, tensor) as world:
        model = GPT(config, tensor=world.whole, stages=stages, device="meta")
        return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("tensor", "stages"), [(1, 1), (2, 1), (4, 2)])
def test_the_parameters_are_those_of_the_models_first_stage(tensor: int, stages: int) -> None:
    model = Model(layers=4, hidden=H, heads=A, sequence=S, vocabulary=256)
    plan = Plan(tensor=tensor, stages=stages, recipe="fp32")
    assert total(model, plan, "weight") == 4 * parameters(tensor, stages)


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 18), (1, 7.5), (2, 4), (3, 2.25)])
def test_a_parameter_costs_what_zeros_stages_leave_of_it(zero: int, bytes_each: float) -> None:
    replica, cut = Plan(), Plan(data=8, zero=zero)
    state = sum(total(ONE, cut, kind) for kind in ("weight", "gradient", "optimizer"))
    assert state == bytes_each * total(ONE, replica, "weight") / 2


def saved(ranks: int, *, sequence_parallel: bool, fused: bool) -> int:
    """Bytes that autograd really keeps of shardlab's block: each storage once, no parameters."""
    sizes: dict[str, int] = {"layers": 1, "hidden": H, "heads": A, "vocab": 256, "sequence": S}
    config = GPTConfig(**sizes, dtype=torch.bfloat16)
    with alone(0, ranks) as world:
        block = Block(
            config, "layers.0", axis=world.whole, sequence_parallel=sequence_parallel,
            init=Init(0, 0.02, torch.bfloat16, "cpu"),
        )  # fmt: skip
        if fused:
            fuse(block)
        own = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}
        held: dict[int, torch.Tensor] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if (place := tensor.untyped_storage().data_ptr()) not in own:
                held[place] = tensor  # alive, so that no other gets its place
            return tensor

        rows = S // ranks if sequence_parallel else S
        x_sBH = torch.randn(rows, B, H, dtype=torch.bfloat16, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            block(x_sBH)
        return sum(tensor.untyped_storage().nbytes() for tensor in held.values())


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
    selective = kept(tensor=ranks, sequence_parallel=sequence_parallel, recompute="selective")
    expected = selective - masks + statistics + gathered
    assert saved(ranks, sequence_parallel=sequence_parallel, fused=fused) == expected
