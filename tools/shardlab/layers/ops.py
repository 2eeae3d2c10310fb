"""The conjugate operators (f and g): a collective in forward, and its counterpart in backward.

A tensor has one of four types over an axis (the vocabulary of PyTorch's spmd_types):
I, invariant: the same on every rank, and so is its gradient; R, replicated: the same on every rank,
while each rank holds only a part of its gradient; V, varying: a different piece on each rank;
P, partial: the logical value is the sum over the ranks. The gradient of I is I, of R is P, of P is
R and of V is V, so each forward below determines its backward:

    function        forward                 backward
    copy_to (f)     I→R  nothing            P→I  all-reduce
    reduce_from (g) P→I  all-reduce         I→R  nothing
    scatter_to      I→V  local slice        V→I  all-gather
    gather_from     V→I  all-gather         I→V  local slice
    all_gather      V→R  all-gather         P→V  reduce-scatter
    reduce_scatter  P→V  reduce-scatter     V→R  all-gather
    all_to_all      V→V  all-to-all         V→V  all-to-all, back

They are autograd Functions and not modules, because only a Function can define its backward. One
Function is enough (`_Pair`, at the end of the file): each operator below starts its collective and
passes its backward, which is the partner in the table, so that a gradient can be differentiated
again. No operator writes into its input or into the incoming gradient. On an axis of one rank each
is the identity. Megatron's names for them are in megatron/core/tensor_parallel/mappings.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from shardlab.comm import Axis


def copy_to(x: Tensor, axis: Axis) -> Tensor:
    """f, I→R: pass the invariant `x` to uses that differ between ranks; sums their gradients."""
    if axis.size == 1:
        return x
    return _pair(x, lambda x: x.view_as(x), (reduce_from, axis))


def reduce_from(x: Tensor, axis: Axis) -> Tensor:
    """g, P→I: sum the ranks' partial `x`."""
    if axis.size == 1:
        return x
    summing = _call(axis.start, "all_reduce", x.detach())
    return _pair(x, lambda _: summing.wait(), (copy_to, axis))


def scatter_to(x: Tensor, axis: Axis, dim: int = -1) -> Tensor:
    """I→V: keep this rank's slice of `x` along `dim`.

    Raises:
        ValueError: the axis does not divide `dim`.
    """
    if axis.size == 1:
        return x
    return _pair(x, lambda x: local_slice(x, axis, dim).contiguous(), (gather_from, axis, dim))


def gather_from(x: Tensor, axis: Axis, dim: int = -1) -> Tensor:
    """V→I: concatenate the ranks' slices along `dim`, for a use that is the same on every rank."""
    if axis.size == 1:
        return x
    return _pair(x, lambda x: gather_along(x, axis, dim), (scatter_to, axis, dim))


def all_gather(x: Tensor, axis: Axis) -> Tensor:
    """V→R: concatenate the slices along dim 0 for uses that differ; sums their gradients."""
    if axis.size == 1:
        return x
    gathering = _call(axis.start, "all_gather", x.detach())
    return _pair(x, lambda _: gathering.wait(), (reduce_scatter, axis))


def reduce_scatter(x: Tensor, axis: Axis) -> Tensor:
    """P→V: sum the ranks' partial `x` and keep this rank's slice of the sum along dim 0.

    Raises:
        ValueError: the axis does not divide dim 0.
    """
    if axis.size == 1:
        return x
    summing = _call(axis.start, "reduce_scatter", x.detach())
    return _pair(x, lambda _: summing.wait(), (all_gather, axis))


def all_to_all(x: Tensor, axis: Axis, split_dim: int, cat_dim: int) -> Tensor:
    """V→V: cut `x` along `split_dim`, send piece j to rank j, concatenate along `cat_dim`.

    Raises:
        ValueError: the axis does not divide `split_dim`.
    """
    if axis.size == 1:
        return x
    back = all_to_all, axis, cat_dim, split_dim
    return _pair(x, lambda x: exchange_along(x, axis, split_dim, cat_dim), back)


# ---------------------------------------------------------------------- the same, without gradients


def local_slice(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return this rank's slice of `x` along `dim`, a view.

    Raises:
        ValueError: the axis does not divide `dim`.
    """
    length, remainder = divmod(x.shape[dim], axis.size)
    if remainder:
        raise ValueError(
            f"{axis.name} axis of size {axis.size} does not divide dim {dim} of {tuple(x.shape)}"
        )
    return x.narrow(dim, axis.rank * length, length)


def gather_along(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return the all-gather of `x` along any dim; a dim other than 0 costs one more copy."""
    if dim in (0, -x.dim()):
        return axis.all_gather(x)
    return torch.cat(axis.all_gather(x.unsqueeze(0)).unbind(0), dim)


def exchange_along(x: Tensor, axis: Axis, split_dim: int, cat_dim: int) -> Tensor:
    """Return the all-to-all of `x` along any two dims."""
    local_slice(x, axis, split_dim)
    pieces = axis.all_to_all(torch.stack(x.chunk(axis.size, split_dim)))
    return torch.cat(pieces.unbind(0), cat_dim)


# ---------------------------------------------------------------------- autograd and torch.compile

Call = tuple[Any, ...]  # a function, and its arguments after the tensor

uncompiled = _disable_dynamo  # compiler.disable, without the import of the compiler


# torch.compile's graph breaks here. operator.call is C, so it adds no Python frame.
_call: Callable[..., Any] = uncompiled(partial(operator.call))


def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call an autograd Function that communicates, outside of any compiled graph."""
    result: Tensor = _call(function.apply, *args)
    return result


class _Pair(torch.autograd.Function):
    """Applies a collective in forward, and another operator of this module to the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Call) -> Tensor:
        ctx.backward_call = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        function, *where = ctx.backward_call
        return function(grad, *where), None, None


_pair: Callable[..., Tensor] = partial(_call, _Pair.apply)
