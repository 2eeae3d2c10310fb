"""Attention of some queries to one block of keys: the block's output and its logsumexp.

Softmax over all keys is the mean of the softmaxes over blocks of keys, weighted by the blocks' sums
of exponentials. Blocks can therefore be processed one after another and discarded (Liu et al.,
"Ring Attention", arXiv 2310.01889). Backward needs no merging: given the logsumexp over all keys, a
block's probabilities are exp(score − logsumexp), whatever the other blocks are (Dao,
"FlashAttention-2").

On the CPU both directions are torch's flash kernels, in fp64 too. On other devices they are written
in plain operations, which hold a block's scores in memory.

Dimensions: B batch, A heads, G key-value groups, Q = A/G, q queries, k keys, D head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
KERNELS = frozenset({"cpu"})  # devices for which torch's flash kernels are used


def attend(
    q_BAqD: Tensor, k_BGkD: Tensor, v_BGkD: Tensor, *, causal: bool, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the block's output [B, A, q, D] and logsumexp [B, A, q].

    Args:
        q_BAqD: queries; those of a group are adjacent heads.
        k_BGkD: keys.
        v_BGkD: values.
        causal: query i sees the keys up to i.
        mask: bool [B, 1, q, k], true where visible; None for causal or full attention. A row that
            sees no key gets a logsumexp so small that merging gives it no weight.
    """
    if q_BAqD.device.type in KERNELS:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        bias = _additive_bias(mask, q_BAqD)
        return kernel(q_BAqD, k_BGkD, v_BGkD, is_causal=causal, attn_mask=bias)  # type: ignore[no-any-return]
    scores = _scores(q_BAqD, k_BGkD, mask, causal=causal)
    lse_BAq = scores.logsumexp(-1)
    probs = (scores - lse_BAq.unsqueeze(-1)).exp_().to(v_BGkD.dtype)
    return probs @ _repeat_for_heads(v_BGkD, q_BAqD), lse_BAq


def merge(out_BAqD: Tensor, lse_BAq: Tensor, block_BAqD: Tensor, block_lse_BAq: Tensor) -> None:
    """Merge a block's output and logsumexp into those of the blocks before it, in place."""
    both_BAq = torch.logaddexp(lse_BAq, block_lse_BAq)
    out_BAqD.mul_((lse_BAq - both_BAq).exp_().unsqueeze(-1))
    out_BAqD.addcmul_(block_BAqD, (block_lse_BAq - both_BAq).exp_().unsqueeze(-1))
    lse_BAq.copy_(both_BAq)


def gradients(
    grad_BAqD: Tensor,
    q_BAqD: Tensor,
    kv: Tensors,
    total: Tensors,
    *,
    causal: bool,
    mask: Tensor | None,
) -> Tensors:
    """Return the block's contribution to the gradients of queries, keys and values.

    Args:
        grad_BAqD: the gradient of the output.
        q_BAqD, kv, causal, mask: as in `attend`.
        total: output and logsumexp over *all* blocks, from `attend` and `merge`.
    """
    if q_BAqD.device.type in KERNELS:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        bias = _additive_bias(mask, q_BAqD)
        return kernel(grad_BAqD, q_BAqD, *kv, *total, 0.0, causal, attn_mask=bias)  # type: ignore[no-any-return]
    out_BAqD, lse_BAq = total
    k_BAkD, v_BAkD = (_repeat_for_heads(x_BGkD, q_BAqD) for x_BGkD in kv)
    probs = (_scores(q_BAqD, kv[0], mask, causal=causal) - lse_BAq.unsqueeze(-1)).exp_()
    inner = (grad_BAqD * out_BAqD).sum(-1, keepdim=True)
    scores = probs * (grad_BAqD @ v_BAkD.mT - inner) / math.sqrt(q_BAqD.shape[-1])
    probs, scores = probs.to(v_BAkD.dtype), scores.to(v_BAkD.dtype)
    dk_BGkD, dv_BGkD = (
        x.view(x.shape[0], kv[0].shape[1], -1, *x.shape[2:]).sum(2)
        for x in (scores.mT @ q_BAqD, probs.mT @ grad_BAqD)
    )
    return scores @ k_BAkD, dk_BGkD, dv_BGkD


def _additive_bias(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a bias for the scores: 0 where visible, a large negative, finite number elsewhere.

    A row of −∞ would have no softmax.
    """
    if mask is None:
        return None
    least = torch.finfo(like.dtype).min / 2
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(~mask, least)


def _scores(q_BAqD: Tensor, k_BGkD: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    scores = q_BAqD @ _repeat_for_heads(k_BGkD, q_BAqD).mT / math.sqrt(q_BAqD.shape[-1])
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    bias = _additive_bias(mask, scores)
    return scores if bias is None else scores + bias


def _repeat_for_heads(x_BGkD: Tensor, q_BAqD: Tensor) -> Tensor:
    return x_BGkD.repeat_interleave(q_BAqD.shape[1] // x_BGkD.shape[1], 1)
