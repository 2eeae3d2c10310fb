"""Norms under sequence parallelism, and the one all-reduce that finishes partial gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shardlab.comm import Axis, World
from shardlab.layers import partial_gradients
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks

S, B, H = 8, 2, 6
EXACT = 1e-12


def one_for_all(world: World) -> list[tuple[str, int, str]]:
    device = world.device
    parameters = []
    for index, (size, dtype) in enumerate(
        [(3, torch.float64), (4, torch.float32), (5, torch.float64), (2, torch.float64)]
    ):
        parameter = nn.Parameter(torch.zeros(size, 2, dtype=dtype, device=device))
        wide = torch.full((2, size), world.rank + index + 1.0, dtype=dtype, device=device)
        parameter.grad = wide.t()
        parameters.append(parameter)
    for parameter in parameters[:3]:
        partial_gradients.mark(parameter)
    views = [parameter.grad for parameter in parameters]
    with Ledger() as ledger:
        partial_gradients.reduce(parameters, world.whole)
    ranks = world.size * (world.size - 1) / 2
    for index, (parameter, view) in enumerate(zip(parameters, views, strict=True)):
        assert parameter.grad is view, "the gradient's storage may belong to a bucket: keep it"
        expected = world.size * (index + 1) + ranks if index < 3 else world.rank + index + 1
        assert torch.equal(parameter.grad, torch.full_like(parameter.grad, expected))
    return [(e.op, e.payload, str(e.dtype)) for e in ledger.entries]


def test_all_marked_gradients_of_a_dtype_share_one_all_reduce(pool) -> None:
    assert pool(2).run(one_for_all)[0] == [
        ("all_reduce", 16 * 8, "torch.float64"),
        ("all_reduce", 8 * 4, "torch.float32"),
    ]


@on_ranks(2)
def test_gradients_are_found_where_the_caller_says_and_missed_where_there_are_none(
    world: World,
) -> None:
    parameter = partial_gradients.mark(nn.Parameter(torch.zeros(3, device=world.device)))
    parameter.main_grad = torch.ones(3, device=world.device)  # type: ignore[attr-defined]
    partial_gradients.reduce([parameter], world.whole, attribute="main_grad")
    assert torch.equal(parameter.main_grad, torch.full_like(parameter, world.size))
    with pytest.raises(ValueError, match=r"marked partial and has no .grad: run backward first"):
        partial_gradients.reduce([parameter], world.whole)
    parameter.requires_grad_(False)
    partial_gradients.reduce([parameter], world.whole)


def test_one_rank_alone_has_nothing_to_finish() -> None:
    partial_gradients.reduce([partial_gradients.mark(nn.Parameter(torch.zeros(1)))], Axis.alone())
