"""The bytes of theory 05's example are those that Megatron's own dispatchers ask for."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from costlab.implementations.megatron import moe_layer as moe
from costlab.layouts.memory import layer_parameters
from shardlab.comm import World
from shardlab.proofs.ledger import Ledger
from tests.docs.page import ROOT
from tests.docs.theory.account import make_gpt, make_plan
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import random_like

T = H = 128
EXAMPLE: dict[str, Any] = {
    "hidden": H, "experts": 8, "top_k": 2, "ffn": 8, "add_bias_linear": False,
    "dtype": torch.float32,
}  # fmt: skip


# The same number of rows from each rank to each expert; gloo can't gather unequal numbers.
EVEN = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}


def sent_forward(world: World, dispatch: str, expert: int, even: bool = False) -> float:
    """Wire bytes of one forward over four ranks: `expert` × 4 / `expert` expert-tensor ranks."""
    settings = EVEN if even else {}
    layout = {"expert": expert, "expert_tensor": 4 // expert}
    sizes = {"expert_model_parallel_size": expert, "expert_tensor_parallel_size": 4 // expert}
    with default_device(world), moe.megatron(**sizes):
        layer = moe.layer(moe.config(dispatch=dispatch, **EXAMPLE, **layout, **settings))
        x_TBH = random_like(T, 1, H, seed=world.rank)
        with Ledger() as ledger:
            layer(x_TBH.to(next(layer.parameters())))
    return sum(entry.wire for entry in ledger.entries)


@pytest.mark.parametrize(
    ("dispatch", "expert", "bytes_"),
    [("all-gather", 4, 408_576), ("all-to-all", 4, 197_568), ("all-to-all", 1, 789_696)],
)
def test_megatrons_dispatchers_ask_for_the_bytes_of_the_theory(
    pool: Any, dispatch: str, expert: int, bytes_: int
) -> None:
    # What a rank sends depends on where its tokens go; the mean over ranks doesn't.
    assert sum(pool(4).run(sent_forward, dispatch, expert)) / 4 == bytes_
    if expert == 4:
        assert f"{bytes_:,}" in (ROOT / "docs/theory/05-experts.md").read_text("utf-8")


@pytest.mark.parametrize("expert", [4, 2, 1])
def test_all_to_all_sends_k_over_ep_of_the_rows_that_all_gather_sends(
    pool: Any, expert: int
) -> None:
    sent = sum(pool(4).run(sent_forward, "all-to-all", expert, True)) / 4
    gathered = 2 * (4 - 1) * T * H * 4
    weights = T * (4 - 1) * EXAMPLE["top_k"] / expert * 4
    assert sent == EXAMPLE["top_k"] / expert * gathered + weights


@pytest.mark.parametrize("page", ["05-experts.md", "05-experts.es.md"])
def test_only_the_feed_forward_part_of_a_block_grows_with_the_experts(page: str) -> None:
    def squares(**experts: int) -> list[int]:
        """Return how many H² of weights a layer has, and those of its experts."""
        model = make_gpt(hidden=64, heads=1, bias=False, **experts)
        return [count // 64**2 for count in layer_parameters(model, make_plan(), 0)]

    dense, _ = squares()
    attention, feed_forward = squares(experts=1, top_k=1)
    assert attention + feed_forward == dense
    stored = attention + EXAMPLE["experts"] * feed_forward
    used = attention + EXAMPLE["top_k"] * feed_forward
    text = (ROOT / "docs/theory" / page).read_text("utf-8").partition("\n## ")[0]
    weights = [f"{count}H²" for count in (attention, feed_forward, dense, stored, used)]
    assert [words for words in weights if words not in text] == []
    times = [float(number) for number in re.findall(r"\b\d\.\d\b", text)]
    assert times == [round(stored / dense, 1), round(used / dense, 1)]
