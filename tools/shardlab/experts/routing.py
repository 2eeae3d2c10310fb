"""Which experts see a token, and with what weight: functions of logits, without a process.

Scores are computed in fp32 whatever the model's dtype, as in Megatron (transformer/moe/moe_utils.py
has the same functions); bf16 logits would tie where experts differ. Of tied scores `torch.topk`
says which come first: any choice is right, as long as all that ask get the same one.

Dimensions: T tokens of this rank, E experts, K chosen ones, G groups of experts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shardlab.experts.config import ExpertConfig


def choose(
    logits_TE: Tensor, config: ExpertConfig, bias_E: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the weight of each expert for each token (0 where not chosen), and who is chosen.

    Args:
        logits_TE: the router's.
        config: top_k, scores, pre_softmax, groups, scaling.
        bias_E: added to the scores for the choice alone.
    """
    by_sigmoid, scores_TE = config.scores == "sigmoid", logits_TE
    if by_sigmoid:
        scores_TE = torch.sigmoid(logits_TE.float()).type_as(logits_TE)
    elif config.pre_softmax:
        scores_TE = _softmax(logits_TE)
    index_TK = top(scores_TE if bias_E is None else scores_TE + bias_E, config)
    chosen_TK = scores_TE.gather(1, index_TK)
    if by_sigmoid and config.top_k > 1:
        chosen_TK = chosen_TK / (chosen_TK.sum(-1, keepdim=True) + 1e-20)
    elif not (by_sigmoid or config.pre_softmax):
        chosen_TK = _softmax(chosen_TK)
    if config.scaling:
        chosen_TK = chosen_TK * config.scaling
    probs_TE = torch.zeros_like(logits_TE).scatter(1, index_TK, chosen_TK)
    return probs_TE, marked(logits_TE, index_TK)


def top(scores_TE: Tensor, config: ExpertConfig) -> Tensor:
    """Return the best K experts of each token, among the best groups if so configured.

    A group is as good as its best K / top_groups experts together.
    """
    if config.groups is not None and config.top_groups is not None:
        scores_TGe = scores_TE.view(-1, config.groups, config.count // config.groups)
        best_TG = scores_TGe.topk(config.top_k // config.top_groups, dim=-1).values.sum(-1)
        kept_TG = marked(best_TG, best_TG.topk(config.top_groups, dim=-1, sorted=False).indices)
        scores_TE = scores_TGe.masked_fill(~kept_TG.unsqueeze(-1), -math.inf).flatten(1)
    return scores_TE.topk(config.top_k, dim=1).indices


def choose_by_sinkhorn(
    logits_TE: Tensor, config: ExpertConfig, training: bool
) -> tuple[Tensor, Tensor]:
    """Return weights and choice, the choice from a balanced assignment while training."""
    scores_TE = torch.sigmoid(logits_TE) if config.top_k == 1 else _softmax(logits_TE)
    with torch.no_grad():
        by_TE = sinkhorn(logits_TE.float()) if training else scores_TE
        chosen_TE = marked(logits_TE, by_TE.topk(config.top_k, dim=1).indices)
    return scores_TE * chosen_TE, chosen_TE


def sinkhorn(logits_TE: Tensor, tolerance: float = 1e-4) -> Tensor:
    """Scale rows and columns of exp(logits) in turn until columns hardly change."""
    cost_TE = logits_TE.exp()
    column_E, moved = cost_TE.new_ones(cost_TE.shape[1]), math.inf
    while moved > tolerance:
        row_T = (1 / max(1, cost_TE.shape[0])) * 1 / ((column_E * cost_TE).sum(1) + 1e-8)
        before_E = column_E
        column_E = (1 / cost_TE.shape[1]) * 1 / ((row_T.unsqueeze(1) * cost_TE).sum(0) + 1e-8)
        moved = float((before_E - column_E).abs().mean())
    return column_E * cost_TE * row_T.unsqueeze(1)


def capacity_of(config: ExpertConfig, tokens: int) -> int:
    """Return how many of a rank's rows an expert takes: at most all of them."""
    assert config.capacity is not None
    return min(tokens, math.ceil(tokens * config.top_k / config.count * config.capacity))


def drop(probs_TE: Tensor, chosen_TE: Tensor, config: ExpertConfig) -> tuple[Tensor, Tensor]:
    """Keep what fits into each expert's capacity; with `pad`, fill up with tokens of weight 0.

    Megatron's "position" is a top-k over zeros and ones, which keeps any of those that tie; ours
    keeps the first.
    """
    tokens = probs_TE.shape[0]
    capacity, by_TE = capacity_of(config, tokens), probs_TE
    if config.drop == "position":
        by_TE = chosen_TE * tokens - torch.arange(tokens, device=probs_TE.device).unsqueeze(1)
    kept_CE = by_TE.topk(capacity, dim=0, sorted=False).indices
    kept_TE = torch.zeros_like(chosen_TE).scatter(0, kept_CE, True)
    if not config.pad:
        kept_TE = kept_TE & chosen_TE
    return probs_TE * kept_TE, kept_TE


def marked(like: Tensor, index: Tensor) -> Tensor:
    """Return booleans of the shape of `like`, true at `index` along dim 1."""
    return torch.zeros_like(like, dtype=torch.bool).scatter(1, index, True)


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, -1, dtype=torch.float32).type_as(logits)
