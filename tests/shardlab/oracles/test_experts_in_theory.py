"""The bytes of theory 05's example are those that Megatron's own dispatchers ask for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from costlab.implementations.megatron import experts as moe
from shardlab.comm import World
from shardlab.proofs.ledger import Ledger
from tests.docs.page import ROOT
from tests.shardlab.its_device import its_device

T = H = 128
EXAMPLE: dict[str, Any] = {
    "hidden": H, "experts": 8, "top_k": 2, "ffn": 8, "add_bias_linear": False,
    "dtype": torch.float32,
}  # fmt: skip


def sent_forward(world: World, dispatch: str, expert: int) -> float:
    """Wire bytes of one forward over four ranks, whole experts or ones cut in four."""
    layout = {"expert": expert, "expert_tensor": 4 // expert}
    sizes = {"expert_model_parallel_size": expert, "expert_tensor_parallel_size": 4 // expert}
    with its_device(world), moe.megatron(**sizes):
        layer = moe.layer(moe.config(dispatch=dispatch, **EXAMPLE, **layout))
        x_TBH = torch.randn(T, 1, H, generator=torch.Generator().manual_seed(world.rank))
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
    # What a rank sends hangs on where its tokens go; the mean over ranks doesn't.
    assert sum(pool(4).run(sent_forward, dispatch, expert)) / 4 == bytes_
    if expert == 4:
        assert f"{bytes_:,}" in (ROOT / "docs/theory/05-experts.md").read_text("utf-8")
