"""Attention of some queries to some keys, as a piece of the whole: its sum and its logsumexp.

Softmax over all keys is a mean of the softmaxes over pieces of them, weighed by the pieces' sums of
exponentials; so pieces can come one after another and be forgotten (Liu et al., "Ring Attention",
arXiv 2310.01889). Backward needs no merging: given the logsumexp over all keys, a piece's
probabilities are exp(score − logsumexp), whoever had the others (Dao, "FlashAttention-2").

On the CPU both directions are torch's own flash kernels, in fp64 too. Elsewhere they are written
out, which holds a piece's scores in memory.

Dimensions: B batch, A heads, G key-value groups, Q = A/G, q queries, k keys, D head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Some = Sequence[Tensor]
KERNELS = frozenset({"cpu"})  # devices with torch's kernels for it


def attend(
    q_BAqD: Tensor, k_BGkD: Tensor, v_BGkD: Tensor, *, causal: bool, seen: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the piece's output [B, A, q, D] and logsumexp [B, A, q].

    Args:
        q_BAqD, k_BGkD, v_BGkD: a group's queries lie side by side.
        causal: query i sees keys up to i.
        seen: bool [B, 1, q, k], where it is neither causal nor every key. A row that sees none gets
            a logsumexp so small that merging gives it no weight.
    """
    if q_BAqD.device.type in KERNELS:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        mask = _mask(seen, q_BAqD)
        return kernel(q_BAqD, k_BGkD, v_BGkD, is_causal=causal, attn_mask=mask)  # type: ignore[no-any-return]
    scores = _scores(q_BAqD, k_BGkD, seen, causal=causal)
    lse_BAq = scores.logsumexp(-1)
    probs = (scores - lse_BAq.unsqueeze(-1)).exp_().to(v_BGkD.dtype)
    return probs @ _for_each_head(v_BGkD, q_BAqD), lse_BAq


def merge(out_BAqD: Tensor, lse_BAq: Tensor, piece_BAqD: Tensor, piece_lse_BAq: Tensor) -> None:
    """Add a piece to what others gave, in place."""
    both_BAq = torch.logaddexp(lse_BAq, piece_lse_BAq)
    out_BAqD.mul_((lse_BAq - both_BAq).exp_().unsqueeze(-1))
    out_BAqD.addcmul_(piece_BAqD, (piece_lse_BAq - both_BAq).exp_().unsqueeze(-1))
    lse_BAq.copy_(both_BAq)


def gradients(
    grad_BAqD: Tensor, q_BAqD: Tensor, kv: Some, whole: Some, *, causal: bool, seen: Tensor | None
) -> Some:
    """Return what the piece adds to the gradients of queries, keys and values.

    Args:
        grad_BAqD: of the output.
        q_BAqD, kv, causal, seen: as in `attend`.
        whole: what `attend` and `merge` made of *all* pieces: output and logsumexp.
    """
    if q_BAqD.device.type in KERNELS:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        mask = _mask(seen, q_BAqD)
        return kernel(grad_BAqD, q_BAqD, *kv, *whole, 0.0, causal, attn_mask=mask)  # type: ignore[no-any-return]
    out_BAqD, lse_BAq = whole
    k_BAkD, v_BAkD = (_for_each_head(x_BGkD, q_BAqD) for x_BGkD in kv)
    probs = (_scores(q_BAqD, kv[0], seen, causal=causal) - lse_BAq.unsqueeze(-1)).exp_()
    inner = (grad_BAqD * out_BAqD).sum(-1, keepdim=True)
    scores = probs * (grad_BAqD @ v_BAkD.mT - inner) / math.sqrt(q_BAqD.shape[-1])
    probs, scores = probs.to(v_BAkD.dtype), scores.to(v_BAkD.dtype)
    dk_BGkD, dv_BGkD = (
        x.view(x.shape[0], kv[0].shape[1], -1, *x.shape[2:]).sum(2)
        for x in (scores.mT @ q_BAqD, probs.mT @ grad_BAqD)
    )
    return scores @ k_BAkD, dk_BGkD, dv_BGkD


def _mask(seen: Tensor | None, like: Tensor) -> Tensor | None:
    """Return what to add to scores. Finite: a row of −∞ would have no softmax."""
    if seen is None:
        return None
    least = torch.finfo(like.dtype).min / 2
    return torch.zeros_like(seen, dtype=like.dtype).masked_fill_(~seen, least)


def _scores(q_BAqD: Tensor, k_BGkD: Tensor, seen: Tensor | None, *, causal: bool) -> Tensor:
    scores = q_BAqD @ _for_each_head(k_BGkD, q_BAqD).mT / math.sqrt(q_BAqD.shape[-1])
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    mask = _mask(seen, scores)
    return scores if mask is None else scores + mask


def _for_each_head(x_BGkD: Tensor, q_BAqD: Tensor) -> Tensor:
    return x_BGkD.repeat_interleave(q_BAqD.shape[1] // x_BGkD.shape[1], 1)
