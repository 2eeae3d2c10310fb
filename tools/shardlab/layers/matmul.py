"""The fused form of the linears' two products: what linear.py does, overlapped.

    column-parallel   W cut along F (its rows; Megatron thinks of Wᵀ, hence "column")
    forward   Y_SBf = X_SBH W_fHᵀ + b_f                      nothing crosses the axis
    dgrad     dX_SBH = Σ_ranks dY_SBf W_fH                   all-reduce, overlapped with wgrad
    wgrad     dW_fH = dY_SBfᵀ X_SBH,  db_f = Σ dY_SBf        local

    row-parallel      W cut along H (its columns)
    forward   Y_SBF = Σ_ranks X_SBh W_Fhᵀ  + b_F             all-reduce; the bias once, after it
    dgrad     dX_SBh = dY_SBF W_Fh                           local
    wgrad     dW_Fh = dY_SBFᵀ X_SBh,  db_F = Σ dY_SBF        local, db the same on every rank

    sequence parallel: outside the pair activations are cut along S. Column gathers X_sBH forward
    (and again backward: only the slice is kept) and reduce-scatters dX; row reduce-scatters Y and
    gathers dY. db_F then sums this rank's rows only: it is partial (partial_gradients.py).

Each is one autograd Function, so that the backward can start its collective before the product that
doesn't need it, and can gather X again instead of keeping it whole. `fuse(model)` puts them where
the plain products were. `LinearWithGradAccumulationAndAsyncCommunication` in
megatron/core/tensor_parallel/layers.py does the same for the column; its row is three nodes.

Dimensions: S sequence, B batch, H input features, F output features, N = S·B rows; lower case: this
rank's share.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from shardlab.comm import Axis
from shardlab.layers.embedding import VocabParallelHead
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear, product_dtype
from shardlab.layers.ops import apply

Model = TypeVar("Model", bound=nn.Module)


def fuse(model: Model, *, gradient_accumulation: bool = False) -> Model:
    """Have the linears and heads in `model` compute by the fused products; return it.

    Args:
        model: any module; what is in it is changed.
        gradient_accumulation: add the weights' gradients into `weight.main_grad` instead of
            returning them; see `_weight_gradient`. A lookup's gradient, also a tied one's, still
            comes in `.grad`.
    """
    for module in model.modules():
        if isinstance(module, ColumnParallelLinear | VocabParallelHead | RowParallelLinear):
            row = isinstance(module, RowParallelLinear)
            fused = partial(_fused, _RowParallel if row else _ColumnParallel)
            module.fused = partial(fused, gradient_accumulation=gradient_accumulation)
    return model


def _fused(  # noqa: PLR0917  (a Fused has five)
    function: type[torch.autograd.Function], x: Tensor, weight: Tensor, bias: Tensor | None,
    axis: Axis, sequence_parallel: bool, *, gradient_accumulation: bool,
) -> Tensor:  # fmt: skip
    """Return Y as linear.py's forward does, by `function`; on one rank torch's own will do."""
    if axis.size == 1 and not gradient_accumulation:
        return linear(x, weight, bias)
    main_grad = _main_grad(weight) if gradient_accumulation else None
    # Cast before the Function: backward, where autocast is off, then meets one dtype.
    factors = [None if t is None else t.to(product_dtype(t)) for t in (x, weight, bias)]
    return apply(function, *factors, axis, sequence_parallel, main_grad)


class _ColumnParallel(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917  (apply takes no keywords)
        ctx: Any, x: Tensor, weight_fH: Tensor, bias_f: Tensor | None, axis: Axis,
        sequence_parallel: bool, main_grad: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.axis, ctx.sequence_parallel, ctx.main_grad = axis, sequence_parallel, main_grad
        # A frozen weight needs no input in backward.
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight_fH)
        return linear(axis.all_gather(x) if sequence_parallel else x, weight_fH, bias_f)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SBf: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_fH = ctx.saved_tensors
        axis, sequence_parallel = ctx.axis, ctx.sequence_parallel
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_Nf = grad_SBf.reshape(-1, grad_SBf.shape[-1])
        grad_x = grad_weight = grad_bias = None
        if sequence_parallel and needs_weight:  # arrives while dgrad is computed
            gathering = axis.start("all_gather", x)
        if needs_x:  # crosses while wgrad is computed
            grad_x = (grad_Nf @ weight_fH).view(*grad_SBf.shape[:-1], weight_fH.shape[1])
            if sequence_parallel:
                summing = axis.start("reduce_scatter", grad_x)
            else:
                summing = axis.start("all_reduce", grad_x, out=grad_x)
        if needs_weight:
            x_SBH = gathering.wait() if sequence_parallel else x
            grad_weight = _weight_gradient(grad_Nf, x_SBH, ctx.main_grad)
        if needs_bias:
            grad_bias = grad_Nf.sum(0)
        if needs_x:
            grad_x = summing.wait()
        return grad_x, grad_weight, grad_bias, None, None, None


class _RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917  (apply takes no keywords)
        ctx: Any, x_SBh: Tensor, weight_Fh: Tensor, bias_F: Tensor | None, axis: Axis,
        sequence_parallel: bool, main_grad: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.axis, ctx.sequence_parallel, ctx.main_grad = axis, sequence_parallel, main_grad
        ctx.save_for_backward(x_SBh if ctx.needs_input_grad[1] else None, weight_Fh)
        y = linear(x_SBh, weight_Fh)  # ours: in place from here on
        y = axis.reduce_scatter(y) if sequence_parallel else axis.all_reduce(y, out=y)
        return y if bias_F is None else y.add_(bias_F)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_SBh, weight_Fh = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_x = grad_weight = grad_bias = None
        if ctx.sequence_parallel:
            gathering = ctx.axis.start("all_gather", grad)
        if needs_bias:  # from this rank's rows alone, while the others' arrive
            grad_bias = grad.reshape(-1, grad.shape[-1]).sum(0)
        if ctx.sequence_parallel:
            grad = gathering.wait()
        grad_NF = grad.reshape(-1, grad.shape[-1])
        if needs_x:
            grad_x = (grad_NF @ weight_Fh).view(*grad.shape[:-1], weight_Fh.shape[1])
        if needs_weight:
            grad_weight = _weight_gradient(grad_NF, x_SBh, ctx.main_grad)
        return grad_x, grad_weight, grad_bias, None, None, None


def _weight_gradient(grad_NF: Tensor, x: Tensor, main_grad: Tensor | None) -> Tensor | None:
    """Return dYᵀ X; or add it to `main_grad` and return None.

    Added in place where dtypes agree, one pass and no temporary; otherwise the product is rounded
    to the compute dtype first. Autograd takes the None for "no gradient": `weight.grad` stays as it
    was, and hooks on the weight still run (torch 2.13: tensor, post-accumulate and node hooks), so
    data parallelism can learn here too that `main_grad` is ready. Megatron instead returns an
    uninitialised dummy of the weight's shape where its data parallelism asked for it
    (`grad_added_to_main_grad`), since hooks on a None may run in another thread on CUDA, and throws
    the dummy away in the hook.
    """
    x_NH = x.reshape(-1, x.shape[-1])
    if main_grad is None:
        return grad_NF.t() @ x_NH
    if main_grad.dtype == grad_NF.dtype:
        main_grad.addmm_(grad_NF.t(), x_NH)
    else:
        main_grad.add_(grad_NF.t() @ x_NH)
    return None


def _main_grad(weight: Tensor) -> Tensor | None:
    if not (weight.requires_grad and torch.is_grad_enabled()):  # nothing will be added
        return None
    main_grad: Tensor | None = getattr(weight, "main_grad", None)
    if main_grad is None or main_grad.shape != weight.shape:
        actual = "none" if main_grad is None else f"shape {tuple(main_grad.shape)}"
        raise ValueError(
            f"gradient_accumulation needs weight.main_grad of shape {tuple(weight.shape)}, found "
            f"{actual}; set it before forward (fp32 zeros, say)"
        )
    return main_grad
