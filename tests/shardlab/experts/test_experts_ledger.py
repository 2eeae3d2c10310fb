"""What a layer of experts sends, against the formulas, for each dispatcher and over each link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from shardlab.comm import Axis, World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes, ExpertLayer
from shardlab.gpt.config import GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.init import Init
from shardlab.proofs import formulas
from shardlab.proofs.collective import Traffic
from shardlab.proofs.ledger import Ledger
from tests.shardlab.difference import random_like

S, B, H, E, K = 8, 2, 6, 8, 3
TOKENS = S * B


def count_traffic(
    world: World, experts: ExpertConfig, dtype: torch.dtype, copies: int, link: str
) -> tuple[Traffic, tuple[int, int]]:
    """What one forward and backward sent, and how many rows went and came."""
    joint = "expert_tensor-expert"
    grid = Grid(world=world, expert=world.size // copies, expert_tensor=copies, links={joint: link})
    config = GPTConfig(
        layers=1, hidden=H, heads=2, ffn=8, vocab=8, sequence=S, bias=False, experts=experts
    )
    layer = ExpertLayer(
        config, "x", axis=Axis.alone(), axes=ExpertAxes.of(grid), init=Init(std=1.0, dtype=dtype)
    )
    x = random_like(S, B, H, seed=world.rank).to(dtype).requires_grad_()
    with Ledger() as ledger:
        layer(x).sum().backward()
    assert {entry.axis for entry in ledger.entries} == {joint}
    chosen_TE = layer.router(x.detach())[1]
    everyone = grid.axis("expert_tensor", "expert").all_gather(chosen_TE.sum(0)[None])
    local_experts = [int(e) for e in layer.experts]
    rows = int(everyone[world.rank].sum()) * copies, int(everyone[:, local_experts].sum())
    return Traffic(ledger.calls(phase=""), ledger.calls(phase="backward")), rows


@pytest.mark.parametrize("link", ["torch", "shared-memory"])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "itemsize", "prob"),
    [(torch.float64, 8, 8), (torch.float32, 4, 4), (torch.bfloat16, 2, 4)],
)
@pytest.mark.parametrize("pad", [False, True])
def test_all_to_all_sends_the_rows_that_were_chosen_each_with_its_probability(
    pool: Any, dtype: torch.dtype, itemsize: int, prob: int, copies: int, pad: bool, link: str
) -> None:
    experts = ExpertConfig(count=E, top_k=K, ffn=8)
    if pad:
        experts = replace(experts, capacity=1.0, pad=True)
    for traffic, (sent, received) in pool(4).run(count_traffic, experts, dtype, copies, link):
        assert pad or sent == TOKENS * K * copies
        assert traffic == formulas.all_to_all_experts(
            sent=sent, received=received, hidden=H, itemsize=itemsize, prob=prob, experts=E,
            copies=copies, ranks=4, even=pad,
        )  # fmt: skip


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_all_gather_sends_every_row_everywhere_with_a_number_for_each_expert(
    pool: Any, copies: int, dtype: torch.dtype, itemsize: int
) -> None:
    experts = ExpertConfig(count=E, top_k=K, ffn=8, dispatch="all-gather")
    expected = formulas.all_gather_experts(
        tokens=TOKENS, hidden=H, itemsize=itemsize, prob=4, experts=E, ranks=4
    )
    for traffic, _ in pool(4).run(count_traffic, experts, dtype, copies, "torch"):
        assert traffic == expected


def test_all_to_all_asks_for_fewer_bytes_while_a_token_has_fewer_experts_than_there_are_ranks() -> (
    None
):
    for ranks in (2, 4, 8, 16):
        rows = {"hidden": 64, "itemsize": 4, "prob": 4, "experts": 16, "ranks": ranks}
        gathered = formulas.all_gather_experts(tokens=TOKENS, **rows).wire
        exchanged = formulas.all_to_all_experts(sent=TOKENS * K, received=TOKENS * K, **rows).wire
        assert (exchanged < gathered) == (ranks > K)
