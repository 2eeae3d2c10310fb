"""The conjugate pairs. A wrong forward shows in the values, a wrong backward in the adjointness."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.layers import ops
from tests.shardlab.pool import on_ranks

# name, the call, how many times larger dim 0 of the input must be than 3, input and output relation
PAIRS: list[tuple[str, Callable[[Tensor, Axis], Tensor], str, str]] = [
    ("copy_to", ops.copy_to, "I", "R"),
    ("reduce_from", ops.reduce_from, "P", "I"),
    ("scatter_to", lambda x, a: ops.scatter_to(x, a, 0), "I", "V"),
    ("scatter_to_last", lambda x, a: ops.scatter_to(x, a, -1), "I", "V"),
    ("gather_from", lambda x, a: ops.gather_from(x, a, 0), "V", "I"),
    ("gather_from_last", lambda x, a: ops.gather_from(x, a, -1), "V", "I"),
    ("gather_from_middle", lambda x, a: ops.gather_from(x, a, 1), "V", "I"),
    ("all_gather", ops.all_gather, "V", "R"),
    ("reduce_scatter", ops.reduce_scatter, "P", "V"),
    ("all_to_all", lambda x, a: ops.all_to_all(x, a, 0, 2), "V", "V"),
    ("all_to_all_back", lambda x, a: ops.all_to_all(x, a, -1, 0), "V", "V"),
]
GRADIENT = {"I": "I", "R": "P", "P": "R", "V": "V"}


def draw(world: World, relation: str, shape: tuple[int, ...], key: int, strided: bool) -> Tensor:
    """A local tensor in `relation`: I and R alike on all ranks, P and V of their own."""
    seed = key if relation in "IR" else key + 100 + world.rank
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator, dtype=torch.float64)
    x = wide[..., ::2] if strided else wide[..., ::2].contiguous()
    return x.to(world.device) if not strided else wide.to(world.device)[..., ::2]


def logical_dot(axis: Axis, x: Tensor, y: Tensor, relation: str) -> Tensor:
    """<x, y> of the logical tensors: x stands in `relation`, y in that of its gradient.

    I with I is on every rank alike. Otherwise the sum over ranks: R with P and P with R sum the
    partial one against the same other, V with V sums over the pieces.
    """
    local = (x * y).sum().reshape(1)
    return local if relation == "I" else axis.all_reduce(local)


@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", [pair[0] for pair in PAIRS])
@on_ranks("size")
def test_backward_is_the_adjoint_of_forward(world: World, name: str, strided: bool) -> None:
    call, before, after = next((c, b, a) for n, c, b, a in PAIRS if n == name)
    axis = world.whole
    n = world.size
    x = draw(world, before, (2 * n, 4 * n, 3 * n), 1, strided).requires_grad_()
    original = x.detach().clone()
    y = call(x, axis)
    g = draw(world, GRADIENT[after], tuple(y.shape), 2, strided)
    kept_g = g.clone()
    (back,) = torch.autograd.grad(y, x, g, retain_graph=True)
    assert torch.equal(x, original), "the input was changed"
    assert torch.equal(g, kept_g), "the incoming gradient was changed"
    forward_product = logical_dot(axis, y.detach(), g, after)
    right = logical_dot(axis, x.detach(), back, before)
    (twice,) = torch.autograd.grad(call(x, axis) + call(x, axis), x, g)
    assert torch.allclose(twice, 2 * back, rtol=1e-13)
    forward_product, right = float(forward_product), float(right)
    assert forward_product == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("name", [pair[0] for pair in PAIRS])
@on_ranks(2)
def test_a_gradient_can_be_differentiated_again(world: World, name: str) -> None:
    """How far the second derivative of f = Σ y³ along v is off, and its size.

    df/dx is the adjoint of 3·y²; its derivative along v is the adjoint of 6·y·(call of v), and the
    adjoint is held by a test of its own.
    """
    call, before, _ = next((c, b, a) for n, c, b, a in PAIRS if n == name)
    axis, shape = world.whole, (2 * world.size, 4 * world.size, 3 * world.size)
    x = draw(world, before, shape, 1, False).requires_grad_()
    v = draw(world, before, shape, 2, False)
    y = call(x, axis)
    (first,) = torch.autograd.grad(y, x, 3 * y.square(), create_graph=True)
    (actual,) = torch.autograd.grad((first * v).sum(), x)
    (right,) = torch.autograd.grad(call(x, axis), x, 6 * y.detach() * call(v, axis))
    off, size = float((actual - right).abs().max()), float(right.abs().max())
    assert off <= 1e-12 * size


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@on_ranks("size")
def test_each_pair_gives_the_values_that_its_name_says(world: World) -> None:
    axis, n, r = world.whole, world.size, world.rank
    local = torch.full((2, 2), float(r + 1), dtype=torch.float64, device=world.device)
    total = n * (n + 1) / 2
    assert torch.equal(ops.reduce_from(local, axis), torch.full_like(local, total))
    assert torch.equal(ops.copy_to(local, axis), local)
    whole = torch.arange(4.0 * n * n, device=world.device).view(2 * n, 2 * n)
    assert torch.equal(ops.scatter_to(whole, axis, 0), whole[2 * r : 2 * r + 2])
    assert torch.equal(ops.scatter_to(whole, axis), whole[:, 2 * r : 2 * r + 2])
    for dim in ([0], [1], []):  # the last by default
        assert torch.equal(ops.gather_from(ops.scatter_to(whole, axis, *dim), axis, *dim), whole)
    rows = ops.scatter_to(whole, axis, 0)
    assert torch.equal(ops.all_gather(rows, axis), whole)
    assert torch.equal(ops.reduce_scatter(whole, axis), rows * n)
    columns = ops.scatter_to(whole, axis, 1)
    assert torch.equal(ops.all_to_all(columns, axis, 0, 1), ops.scatter_to(whole, axis, 0))


def refuse(world: World) -> str:
    x = torch.zeros(world.size + 1, 3)
    with pytest.raises(ValueError, match="does not divide dim 0") as caught:
        ops.scatter_to(x, world.whole, 0)
    with pytest.raises(ValueError, match="equal pieces"):
        ops.reduce_scatter(x, world.whole)
    return str(caught.value)


def test_a_dim_that_the_axis_does_not_divide_is_refused_by_name(pool) -> None:
    assert "world axis of size 2 does not divide dim 0 of (3, 3)" in pool(2).run(refuse)[0]
