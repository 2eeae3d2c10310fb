"""Attention by heads against attention written out on whole heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardlab.comm import Axis, World
from shardlab.gpt.attention import Attention
from shardlab.gpt.config import GPTConfig
from shardlab.layers.init import Init
from tests.shardlab.layer_twins import layer_errors
from tests.shardlab.reference import ReferenceAttention

S, B, H = 8, 2, 32
EXACT = 1e-12


def config(heads: int, groups: int, **more: Any) -> GPTConfig:
    return GPTConfig(layers=1, hidden=H, heads=heads, kv_heads=groups, vocab=1, sequence=S, **more)


def compare(
    world: World, heads: int, groups: int, sequence_parallel: bool, dropout: float
) -> dict[str, float]:
    axis = world.whole
    layer = Attention(
        config(heads, groups, dropout=dropout),
        "attention",
        axis=axis,
        sequence_parallel=sequence_parallel,
        init=Init(dtype=torch.float64, device=world.device),
    )
    reference = ReferenceAttention(H, heads, groups, bias=True).double().to(world.device)
    x = torch.randn(B, S, H, dtype=torch.float64, device=world.device)
    return layer_errors(layer, reference, x, axis, sequence_parallel=sequence_parallel)


@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["whole", "sequence_parallel"])
@pytest.mark.parametrize(("heads", "groups"), [(8, 8), (16, 8), (8, 4), (8, 2), (4, 1)])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_heads_cut_over_the_axis_equal_whole_attention(
    pool, size, heads, groups, sequence_parallel
) -> None:
    if groups % size:
        refusal = r"tensor axis of size \d does not divide \d (heads|key-value groups)"
        with pytest.raises(ValueError, match=refusal):
            Attention(config(heads, groups), "attention", axis=_axis_of(size))
        return
    for errors in pool(size).run(compare, heads, groups, sequence_parallel, 0.0):
        assert {what: e for what, e in errors.items() if not e <= EXACT} == {}


def test_attention_with_dropout_is_the_same_attention_when_nothing_is_dropped(pool) -> None:
    """1 − 1e-30 is 1, so the mask keeps everything."""
    for errors in pool(2).run(compare, 8, 4, False, 1e-30):
        assert {what: e for what, e in errors.items() if not e <= EXACT} == {}


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
