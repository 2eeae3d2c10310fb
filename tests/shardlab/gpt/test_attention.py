"""Attention by heads against attention written out on whole heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardlab.comm import Axis
from shardlab.gpt.attention import Attention
from shardlab.gpt.config import GPTConfig

S, B, H = 8, 2, 32
EXACT = 1e-12


def config(heads: int, groups: int, **more: Any) -> GPTConfig:
    return GPTConfig(layers=1, hidden=H, heads=heads, kv_heads=groups, vocab=1, sequence=S, **more)


def _axis_of(size: int) -> Axis:
    """An axis that says its size and can do nothing else."""
    axis = Axis.alone()
    axis.size = size
    return axis


@pytest.mark.parametrize(
    ("heads", "groups", "message"),
    [
        (2, 2, "tensor axis of size 4 does not divide 2 heads; choose"),
        (8, 2, "tensor axis of size 4 does not divide 2 key-value groups; choose"),
        (8, 3, "8 heads do not form 3 equal key-value groups"),
        (20, 20, "hidden size 32 is not a multiple of 20 heads"),
    ],
)
def test_heads_that_cannot_be_cut_are_refused_with_what_could(heads, groups, message) -> None:
    with pytest.raises(ValueError, match=message):
        Attention(config(heads, groups), "attention", axis=_axis_of(4))


def test_no_position_sees_what_follows() -> None:
    layer = Attention(config(4, 2), "attention", axis=Axis.alone())
    x = torch.randn(S, B, H)
    changed = x.clone()
    changed[5:] += 1
    before, after = layer(x), layer(changed)
    assert torch.equal(before[:5], after[:5])
    assert not torch.allclose(before[5:], after[5:])
