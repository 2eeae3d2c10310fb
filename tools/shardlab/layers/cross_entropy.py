"""Cross-entropy over logits sharded along the vocabulary, with one collective.

Each rank reduces its words to three numbers a token: the largest logit m; the logarithm of the
sum of exponentials of logits − m; and the target's logit − m if the target is one of its words, −∞
if not. After one all-gather of these, with M the largest m of all ranks,
    loss = logsumexp_ranks(log sum + m − M) − max_ranks(target + m − M)
The maximum is subtracted before anything is added, so large logits lose no digits. Megatron sums
exponentials against the global maximum and so needs three all-reduces: the maximum, the target's
logit, the sum (`_VocabParallelCrossEntropy` in megatron/core/tensor_parallel/cross_entropy.py). It
also rounds to fp32, writes over fp32 logits that it is given, and in backward over the softmax that
it saved; here fp64 stays fp64 and nothing is written over.

Backward needs no collective: d loss / d logit = softmax − [word is the target], and the softmax
over all words is the softmax over this rank's, times this rank's share of the sum.

Dimensions: N tokens (any shape), V vocabulary; v: this rank's share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shardlab.comm import Axis
from shardlab.layers.ops import apply

IGNORED = -100  # torch's and Megatron's datasets' mark of a token that is not learned from


def cross_entropy(
    logits_Nv: Tensor, targets_N: Tensor, *, axis: Axis, ignore_index: int = IGNORED
) -> Tensor:
    """Return −log softmax(logits)[target] for each token, the same on every rank.

    Args:
        logits_Nv: [*N, v], this rank's words; padding holds the smallest finite number. −∞ is fine
            for some of a rank's words, not for all.
        targets_N: [*N] integers in 0 … V − 1, or `ignore_index`. The loss of any other target is
            infinite: no rank claims it.
        axis: the tensor axis.
        ignore_index: the target of tokens whose loss and gradient are 0. A mean is to be taken over
            the others (`GPT.loss`).

    Returns:
        [*N] in the logits' dtype, but fp32 at least.

    """
    return apply(_CrossEntropy, logits_Nv, targets_N, axis, ignore_index)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_Nv: Tensor, targets_N: Tensor, axis: Axis, ignore_index: int
    ) -> Tensor:
        ctx.dtype = logits_Nv.dtype
        logits_Nv = logits_Nv.to(torch.promote_types(logits_Nv.dtype, torch.float32))
        length = logits_Nv.shape[-1]
        # One fused pass gives the softmax. Its largest is 1 / sum and at least 1/v: a safe log.
        softmax_Nv = logits_Nv.softmax(-1)
        sum_N = softmax_Nv.amax(-1).log_().neg_()
        largest_N = logits_Nv.amax(-1)
        local_N = targets_N - axis.rank * length
        ignored_N = targets_N == ignore_index
        is_local_N = (local_N >= 0) & (local_N < length) & ~ignored_N
        local_N1 = local_N.where(is_local_N, 0).unsqueeze(-1)
        target_N = logits_Nv.gather(-1, local_N1).squeeze(-1).sub_(largest_N)
        target_N.masked_fill_(~is_local_N, -math.inf)
        local_13N = torch.stack([largest_N, sum_N, target_N]).unsqueeze(0)
        loss_N, share_N = _merge(axis.all_gather(local_13N), axis.rank)
        ctx.save_for_backward(softmax_Nv, share_N.masked_fill_(ignored_N, 0), local_N1, is_local_N)
        return loss_N.masked_fill_(ignored_N, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None, None, None]:
        softmax_Nv, share_N, local_N1, is_local_N = ctx.saved_tensors
        grad_Nv = softmax_Nv * (share_N * grad_N).unsqueeze(-1)
        grad_Nv.scatter_add_(-1, local_N1, (grad_N * is_local_N).neg_().unsqueeze(-1))
        return grad_Nv.to(ctx.dtype), None, None, None


def _merge(ranks_n3N: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the loss, and the share of all exponentials that those of `rank` make up."""
    largest_nN, sum_nN, target_nN = ranks_n3N.unbind(1)
    shift_nN = largest_nN - largest_nN.amax(0)
    sum_nN = sum_nN + shift_nN
    total_N = sum_nN.logsumexp(0)
    loss_N = total_N - (target_nN + shift_nN).amax(0)
    return loss_N, (sum_nN[rank] - total_N).exp_()
