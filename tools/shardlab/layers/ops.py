"""The conjugate pairs: what crosses an axis in forward, and what its gradient crosses in backward.

A tensor stands in one of four relations to an axis (the vocabulary of PyTorch's spmd_types):
I, invariant: the same on every rank, and so is its gradient; R, replicated: the same on every rank,
while each rank holds only a part of its gradient; V, varying: a different piece on each rank;
P, partial: the logical value is the sum over the ranks. Gradients go I to I, R to P, P to R and
V to V, so each forward below fixes its backward:

    function        forward                 backward
    copy_to         I→R  nothing            P→I  all-reduce
    reduce_from     P→I  all-reduce         I→R  nothing
    scatter_to      I→V  own slice          V→I  all-gather
    gather_from     V→I  all-gather         I→V  own slice
    all_gather      V→R  all-gather         P→V  reduce-scatter
    reduce_scatter  P→V  reduce-scatter     V→R  all-gather
    all_to_all      V→V  all-to-all         V→V  all-to-all, back

They are autograd Functions and not modules since only a Function has a backward of its own to
differ from the forward. The backward of each *is* its partner in the table, so that a gradient can
be differentiated again. None writes to its input or to the gradient that comes in; on an axis of
one rank each is the identity. Megatron's names for them stand in megatron/core/tensor_parallel/
mappings.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from shardlab.comm import Axis

uncompiled = _disable_dynamo  # compiler.disable, without importing the compiler for everybody


@uncompiled
def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call an autograd Function that communicates: a graph that torch.compile makes breaks here."""
    result: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return result


def copy_to(x: Tensor, axis: Axis) -> Tensor:
    """I→R: hand the invariant `x` to ranks that each use it their own way; sums their gradients."""
    return x if axis.size == 1 else apply(_CopyTo, x, axis)


def reduce_from(x: Tensor, axis: Axis) -> Tensor:
    """P→I: sum the ranks' partial `x`."""
    return x if axis.size == 1 else apply(_ReduceFrom, x, axis)


def scatter_to(x: Tensor, axis: Axis, dim: int = -1) -> Tensor:
    """I→V: keep this rank's slice of `x` along `dim`.

    Raises:
        ValueError: the axis does not divide `dim`.
    """
    return x if axis.size == 1 else apply(_ScatterTo, x, axis, dim)


def gather_from(x: Tensor, axis: Axis, dim: int = -1) -> Tensor:
    """V→I: put the ranks' slices together along `dim`, for a use that is the same on every rank."""
    return x if axis.size == 1 else apply(_GatherFrom, x, axis, dim)


def all_gather(x: Tensor, axis: Axis, dim: int = 0) -> Tensor:
    """V→R: put the slices together along `dim` for uses that differ; sums their gradients."""
    return x if axis.size == 1 else apply(_AllGather, x, axis, dim)


def reduce_scatter(x: Tensor, axis: Axis, dim: int = 0) -> Tensor:
    """P→V: sum the ranks' partial `x` and keep this rank's slice of the sum along `dim`.

    Raises:
        ValueError: the axis does not divide `dim`.
    """
    return x if axis.size == 1 else apply(_ReduceScatter, x, axis, dim)


def all_to_all(x: Tensor, axis: Axis, split_dim: int, cat_dim: int) -> Tensor:
    """V→V: cut `x` along `split_dim`, send piece j to rank j, join what comes along `cat_dim`.

    Raises:
        ValueError: the axis does not divide `split_dim`.
    """
    return x if axis.size == 1 else apply(_AllToAll, x, axis, split_dim, cat_dim)


# ---------------------------------------------------------------------- the same, without gradients


def own_slice(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return this rank's slice of `x` along `dim`, a view.

    Raises:
        ValueError: the axis does not divide `dim`.
    """
    length, left = divmod(x.shape[dim], axis.size)
    if left:
        raise ValueError(
            f"{axis.name} axis of size {axis.size} does not divide dim {dim} of {tuple(x.shape)}"
        )
    return x.narrow(dim, axis.rank * length, length)


def gathered(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """All-gather along any dim. Ranks come back stacked in dim 0; other dims take one more copy."""
    if dim in (0, -x.dim()):
        return axis.all_gather(x)
    pieces = axis.all_gather(x.unsqueeze(0))  # [n, …]
    return torch.cat(pieces.unbind(0), dim)


def sum_scattered(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Reduce-scatter along any dim."""
    if dim in (0, -x.dim()):
        return axis.reduce_scatter(x)
    own_slice(x, axis, dim)  # raises where the axis does not divide
    return axis.reduce_scatter(torch.stack(x.chunk(axis.size, dim))).squeeze(0)


def exchanged(x: Tensor, axis: Axis, split_dim: int, cat_dim: int) -> Tensor:
    """All-to-all along any two dims."""
    own_slice(x, axis, split_dim)
    pieces = axis.all_to_all(torch.stack(x.chunk(axis.size, split_dim)))
    return torch.cat(pieces.unbind(0), cat_dim)


class _CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return reduce_from(grad, ctx.axis), None


class _ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return axis.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return copy_to(grad, ctx.axis), None


class _ScatterTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return own_slice(x, axis, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return gather_from(grad, ctx.axis, ctx.dim), None, None


class _GatherFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return gathered(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return scatter_to(grad, ctx.axis, ctx.dim), None, None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return gathered(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return reduce_scatter(grad, ctx.axis, ctx.dim), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return sum_scattered(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return all_gather(grad, ctx.axis, ctx.dim), None, None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, split_dim: int, cat_dim: int) -> Tensor:
        ctx.axis, ctx.dims = axis, (split_dim, cat_dim)
        return exchanged(x, axis, split_dim, cat_dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        split_dim, cat_dim = ctx.dims
        return all_to_all(grad, ctx.axis, cat_dim, split_dim), None, None, None
