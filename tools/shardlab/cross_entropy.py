"""Cross-entropy over logits cut along the vocabulary, with one collective.

Each rank reduces its own words to two numbers a token: the log-sum-exp of its logits, and the
target's logit if the target is its own (−∞ otherwise). One all-gather of these brings every rank
    loss = logsumexp_ranks(lse) − max_ranks(target's logit)
Megatron sums exponentials against a global maximum and so needs three all-reduces: the maximum, the
target's logit, the sum (`_VocabParallelCrossEntropy` in megatron/core/tensor_parallel/
cross_entropy.py). It also rounds to fp32, writes over fp32 logits that it is given, and its
backward over the softmax that it saved; here fp64 stays fp64 and nothing is written over.

Backward needs no collective: d loss / d logit = softmax − [word is the target], and the softmax
over all words is the softmax over this rank's, times exp(lse − logsumexp_ranks(lse)).

Dimensions: N tokens (any shape), V vocabulary; v: this rank's share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shardlab.comm import Axis


def cross_entropy(logits_Nv: Tensor, targets_N: Tensor, *, axis: Axis) -> Tensor:
    """Return −log softmax(logits)[target] for each token, the same on every rank.

    Args:
        logits_Nv: [*N, v], this rank's words; words of padding hold the smallest finite number.
        targets_N: [*N] integers in 0 … V − 1. The loss of any other target is infinite: no rank
            claims it.
        axis: the tensor axis.

    Returns:
        [*N] in the logits' dtype, but fp32 at least.

    """
    loss_N: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits_Nv, targets_N, axis
    )
    return loss_N


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_Nv: Tensor, targets_N: Tensor, axis: Axis) -> Tensor:
        ctx.dtype = logits_Nv.dtype
        logits_Nv = logits_Nv.to(torch.promote_types(logits_Nv.dtype, torch.float32))
        length = logits_Nv.shape[-1]
        softmax_Nv = logits_Nv.softmax(-1)
        # lse = max − log(softmax of the max). One fused pass gave the softmax, and its maximum is
        # at least 1/v, so the logarithm is safe.
        lse_N = logits_Nv.amax(-1).sub_(softmax_Nv.amax(-1).log_())
        local_N = targets_N - axis.rank * length
        own_N = (local_N >= 0) & (local_N < length)
        local_N1 = local_N.where(own_N, 0).unsqueeze(-1)
        target_N = logits_Nv.gather(-1, local_N1).squeeze(-1).masked_fill_(~own_N, -math.inf)
        loss_N, total_N = _merge(lse_N, target_N, axis)
        ctx.save_for_backward(softmax_Nv, lse_N.sub_(total_N).exp_(), local_N1, own_N)
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None, None]:
        softmax_Nv, share_N, local_N1, own_N = ctx.saved_tensors
        grad_Nv = softmax_Nv * (share_N * grad_N).unsqueeze(-1)
        grad_Nv.scatter_add_(-1, local_N1, (grad_N * own_N).neg_().unsqueeze(-1))
        return grad_Nv.to(ctx.dtype), None, None


def _merge(lse_N: Tensor, target_N: Tensor, axis: Axis) -> tuple[Tensor, Tensor]:
    """Return the loss and the log-sum-exp over all words, from each rank's pair; one all-gather."""
    pair_12N = torch.stack([lse_N, target_N]).unsqueeze(0)
    lse_nN, target_nN = axis.all_gather(pair_12N).unbind(1)
    total_N = lse_nN.logsumexp(0)
    return total_N - target_nN.amax(0), total_N
