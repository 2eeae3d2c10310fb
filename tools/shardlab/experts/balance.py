"""The losses that keep a router balanced, and how they reach the gradient from inside a model.

A stage of a pipeline can't hand a loss of its own to the last one, so each is attached to something
that backward will pass: forward changes nothing, backward adds the loss's gradient, as Megatron's
`MoEAuxLossAutoScaler` does. What is trained is then

    mean over micro-batches and data ranks of (loss + auxiliary losses)

whatever the grid; each tensor or context rank adds the part of its own rows.

Dimensions: T tokens of this rank, E experts (or experts of each sequence).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shardlab.experts.config import ExpertConfig
from shardlab.experts.routing import marked


def scores(logits_TE: Tensor, config: ExpertConfig) -> tuple[Tensor, Tensor]:
    """Return what a token would give each expert, and its top K by that, without bias or groups."""
    if config.scores == "softmax":
        scores_TE = torch.softmax(logits_TE, -1, dtype=torch.float32)
    else:
        scores_TE = torch.sigmoid(logits_TE)
        scores_TE = scores_TE / (scores_TE.sum(-1, keepdim=True) + 1e-20)
    return scores_TE, marked(logits_TE, scores_TE.topk(config.top_k, dim=1).indices)


def load_loss(scores_TE: Tensor, load_E: Tensor, *, experts: int, top_k: int) -> Tensor:
    """Return E Σ fᵢ Pᵢ, of which these scores are a part: 1 for an even load, E / K at worst.

    fᵢ is the share of the choices that fell on expert i, Pᵢ its mean score (Fedus et al., "Switch
    Transformers", section 2.2; Megatron's `switch_load_balancing_loss_func`). The gradient comes
    by way of P; choices have none.

    Args:
        scores_TE: of this rank's tokens.
        load_E: choices that fell on each expert, over all tokens that make up the loss.
        experts: E; load_E is longer where each sequence counts for itself.
        top_k: K.
    """
    tokens = (load_E.sum(dtype=torch.float64) / top_k * experts / load_E.numel()).clamp(min=1)
    factor = experts / (top_k * tokens * tokens)
    return (scores_TE.sum(0) * load_E).sum() * factor.to(scores_TE.dtype)


def z_loss(logits_TE: Tensor) -> Tensor:
    """Return the mean square of log Σ exp(logits) (Zoph et al., "ST-MoE", equation 5)."""
    return logits_TE.logsumexp(-1).square().sum() / max(1, logits_TE.shape[0])


def attach(x: Tensor, loss: Tensor) -> Tensor:
    """Return `x`; backward through it also sends a gradient of 1 to `loss`."""
    attached: Tensor = _Attach.apply(x, loss)  # type: ignore[no-untyped-call]
    return attached


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor) -> Tensor:
        ctx.like = loss.new_empty(()).expand(loss.shape)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.ones_like(ctx.like)
